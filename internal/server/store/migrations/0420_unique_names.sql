-- +goose Up

-- Writes of different owners run at the same time, so that only the database can keep these names unique.
-- Of several rows with a name, the oldest keeps it, and the others get the beginning of their id.
UPDATE agent_pools SET name = name || '-' || SUBSTR(id, 1, 8) WHERE EXISTS (
    SELECT 1 FROM agent_pools o WHERE o.org_id = agent_pools.org_id AND o.name = agent_pools.name
    AND (o.created_at < agent_pools.created_at OR o.created_at = agent_pools.created_at AND o.id < agent_pools.id));
CREATE UNIQUE INDEX agent_pools_by_name ON agent_pools (org_id, name);

UPDATE users SET login = login || '-' || SUBSTR(id, 1, 8) WHERE EXISTS (
    SELECT 1 FROM users o WHERE LOWER(o.login) = LOWER(users.login)
    AND (o.created_at < users.created_at OR o.created_at = users.created_at AND o.id < users.id));
DROP INDEX users_by_lower_login;
CREATE UNIQUE INDEX users_by_lower_login ON users (LOWER(login));

-- +goose Down
DROP INDEX users_by_lower_login;
CREATE INDEX users_by_lower_login ON users (LOWER(login));
DROP INDEX agent_pools_by_name;
