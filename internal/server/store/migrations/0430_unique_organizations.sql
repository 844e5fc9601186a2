-- +goose Up

-- As in 0420: organizations that are created at the same time must not have names that differ only in case.
UPDATE organizations SET name = name || '-' || SUBSTR(id, 1, 8) WHERE EXISTS (
    SELECT 1 FROM organizations o WHERE LOWER(o.name) = LOWER(organizations.name)
    AND (o.created_at < organizations.created_at OR o.created_at = organizations.created_at AND o.id < organizations.id));
CREATE UNIQUE INDEX organizations_by_lower_name ON organizations (LOWER(name));

-- +goose Down
DROP INDEX organizations_by_lower_name;
