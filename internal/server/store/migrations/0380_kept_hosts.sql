-- +goose Up

-- Integrations and issuers that are older than the rule for outgoing calls keep their hosts. Those of
-- public forges need no exception.
ALTER TABLE vcs_integrations ADD COLUMN keeps_host BIGINT NOT NULL DEFAULT 0;
UPDATE vcs_integrations SET keeps_host = 1
    WHERE api_url <> '' OR base_url NOT IN ('https://github.com', 'https://gitlab.com', 'https://bitbucket.org', 'https://dev.azure.com');
ALTER TABLE oidc_issuers ADD COLUMN keeps_host BIGINT NOT NULL DEFAULT 0;
UPDATE oidc_issuers SET keeps_host = 1
    WHERE jwks = '' AND url NOT IN ('https://token.actions.githubusercontent.com', 'https://gitlab.com', 'https://api.pulumi.com/oidc');

-- +goose Down
ALTER TABLE vcs_integrations DROP COLUMN keeps_host;
ALTER TABLE oidc_issuers DROP COLUMN keeps_host;
