-- An ordinary day: rows come, change, move to another key and go; a column is added; a table is emptied and filled again.
UPDATE customers SET name = 'Customer One', email = 'one@shop.example' WHERE id = 1;
UPDATE customers SET id = 1002 WHERE id = 2;
DELETE FROM orders WHERE customer = 3;
DELETE FROM customers WHERE id = 3;
UPDATE orders SET note = NULL, total = total + 1 WHERE note = 'gift';

ALTER TABLE orders ADD COLUMN paid boolean;
INSERT INTO orders VALUES (1, 2001, 12.50, 'with the new column', true);

TRUNCATE suppliers;
INSERT INTO suppliers VALUES (3, 'Sluice & Co', 'hello@sluice.example');
