-- Posts the events of a file, a line each, one per request and in turn. Prints what happened as one line of JSON.
local requests, turn = {}, 0

function init(arguments)
  local headers = { ["Content-Type"] = "application/json", ["X-Auth-Token"] = arguments[2] }
  for line in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("POST", "/api/v1/event", headers, line)
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
