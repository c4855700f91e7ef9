-- The source: three tables, each with a key, and some rows.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, email text, joined date);
CREATE TABLE suppliers (id bigint PRIMARY KEY, name text NOT NULL, email text);
CREATE TABLE orders (customer bigint, number integer, total numeric(10,2), note text, PRIMARY KEY (customer, number));

INSERT INTO customers
SELECT i, 'Customer ' || i, 'customer' || i || '@shop.example', date '2026-01-01' + i FROM generate_series(1, 200) i;
INSERT INTO suppliers VALUES (1, 'Mill & Sons', 'orders@mill.example'), (2, 'Weir Ltd', NULL);
INSERT INTO orders
SELECT 1 + i % 200, i, i * 0.25, CASE WHEN i % 7 = 0 THEN 'gift' END FROM generate_series(1, 1000) i;
