-- +goose Up

-- The texts that count as an organization's storage, because they are longer than others.
CREATE INDEX updates_long ON updates (deployment_id, stack_id, octet_length(program)) WHERE octet_length(program) > 4096;
CREATE INDEX deployments_long ON deployments (org_id, octet_length(configuration)) WHERE octet_length(configuration) > 4096;
CREATE INDEX deployment_settings_long ON deployment_settings (stack_id, octet_length(document)) WHERE octet_length(document) > 4096;
CREATE INDEX schedules_long ON schedules (stack_id, octet_length(request)) WHERE octet_length(request) > 4096;
CREATE INDEX stacks_long ON stacks (org_id, octet_length(config)) WHERE octet_length(config) > 4096;

-- +goose Down
DROP INDEX stacks_long;
DROP INDEX schedules_long;
DROP INDEX deployment_settings_long;
DROP INDEX deployments_long;
DROP INDEX updates_long;
