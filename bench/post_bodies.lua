-- Posts the bodies of files, one per request and in turn: path, content type, content encoding or "", and the files.
-- Prints what happened as one line of JSON.
local requests, turn = {}, 0

function init(arguments)
  local headers = { ["Content-Type"] = arguments[2] }
  if arguments[3] ~= "" then
    headers["Content-Encoding"] = arguments[3]
  end
  for place = 4, #arguments do
    local file = io.open(arguments[place], "rb")
    requests[#requests + 1] = wrk.format("POST", arguments[1], headers, file:read("*a"))
    file:close()
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"refused":%d,"broken":%d,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f}\n',
    summary.requests, summary.duration / 1e6, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
