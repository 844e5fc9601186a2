-- +goose Up

-- The policy packs of updates: those that the server required when the update was created, and those that only its
-- events name. The events say what the packs found.
CREATE TABLE policy_runs (
    update_id  TEXT NOT NULL REFERENCES updates (id) ON DELETE CASCADE,
    pack       TEXT NOT NULL, -- name
    pack_id    TEXT NOT NULL, -- '' if the server did not require the pack
    number     BIGINT NOT NULL, -- of the version
    tag        TEXT NOT NULL,
    group_name TEXT NOT NULL,
    levels     TEXT NOT NULL, -- JSON: the name and the level of each policy, as the client received them
    covered    TEXT NOT NULL, -- JSON: the policies that are advisory because of an exception for the whole stack
    ran        BIGINT NOT NULL, -- 1 if the summary of the update names the pack
    counts     TEXT NOT NULL, -- JSON: the number of resources of each policy that passed and failed
    mandatory  BIGINT NOT NULL, -- violations, without those to which exceptions apply
    advisory   BIGINT NOT NULL,
    excepted   BIGINT NOT NULL, -- violations to which exceptions apply
    omitted    BIGINT NOT NULL, -- violations without a row, because there are too many
    PRIMARY KEY (update_id, pack)
);

-- The violations in the events of updates.
CREATE TABLE policy_violations (
    update_id  TEXT NOT NULL REFERENCES updates (id) ON DELETE CASCADE,
    sequence   BIGINT NOT NULL, -- of the event
    pack       TEXT NOT NULL,
    tag        TEXT NOT NULL,
    policy     TEXT NOT NULL,
    level      TEXT NOT NULL,
    severity   TEXT NOT NULL,
    urn        TEXT NOT NULL,
    message    TEXT NOT NULL,
    exceptions TEXT NOT NULL, -- JSON: those of the organization that apply
    claimed    TEXT NOT NULL, -- JSON: others that the client has applied
    PRIMARY KEY (update_id, sequence)
);

-- What packs found in stacks, from the first violation until long after it is fixed.
CREATE TABLE policy_issues (
    id            TEXT PRIMARY KEY,
    stack_id      TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    kind          TEXT NOT NULL, -- preventative or audit
    pack          TEXT NOT NULL,
    policy        TEXT NOT NULL,
    urn           TEXT NOT NULL,
    message_hash  TEXT NOT NULL,
    message       TEXT NOT NULL,
    tag           TEXT NOT NULL,
    level         TEXT NOT NULL,
    severity      TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_name TEXT NOT NULL,
    group_name    TEXT NOT NULL,
    status        TEXT NOT NULL, -- open, in_progress, ignored, by_design or fixed
    priority      TEXT NOT NULL,
    assigned_to   TEXT NOT NULL, -- id of a user; '' for none
    reason        TEXT NOT NULL, -- why the issue is ignored, or closed without a fix
    ignored_until BIGINT NOT NULL, -- 0 if without an end
    exceptions    TEXT NOT NULL, -- JSON
    version       BIGINT NOT NULL, -- of the stack, when the issue was seen last
    observed_at   BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL,
    modified_at   BIGINT NOT NULL,
    fixed_at      BIGINT NOT NULL, -- 0 unless fixed
    reopened      BIGINT NOT NULL, -- how often
    seen_in       TEXT NOT NULL, -- the last update or evaluation that reports the violation
    evaluated_in  TEXT NOT NULL, -- the last one that evaluated the policy for the resource, or removed the resource
    UNIQUE (stack_id, kind, pack, policy, urn, message_hash)
);
CREATE INDEX policy_issues_by_urn ON policy_issues (stack_id, urn);
CREATE INDEX policy_issues_fixed ON policy_issues (fixed_at) WHERE fixed_at > 0;

-- The newest result of each pack for each stack.
CREATE TABLE policy_standings (
    stack_id   TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    pack       TEXT NOT NULL,
    pack_id    TEXT NOT NULL,
    number     BIGINT NOT NULL,
    tag        TEXT NOT NULL,
    group_name TEXT NOT NULL,
    version    BIGINT NOT NULL, -- of the stack
    at         BIGINT NOT NULL,
    ran        BIGINT NOT NULL,
    problem    TEXT NOT NULL, -- why the pack did not run; '' if it ran, or if that is unknown
    levels     TEXT NOT NULL, -- JSON
    counts     TEXT NOT NULL, -- JSON
    PRIMARY KEY (stack_id, kind, pack)
);

-- Exceptions from policies of packs. An exception is removed when removed_at is set, or expires_at has passed.
CREATE TABLE policy_exceptions (
    id          TEXT PRIMARY KEY,
    org_id      TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    number      BIGINT NOT NULL, -- in the name that clients use
    pack_id     TEXT NOT NULL REFERENCES policy_packs (id) ON DELETE CASCADE,
    pack        TEXT NOT NULL, -- name
    reason      TEXT NOT NULL,
    entries     TEXT NOT NULL, -- JSON: policies and targets
    whole_stack BIGINT NOT NULL, -- 1 if the policies are advisory for the stack of the targets
    digest      TEXT NOT NULL, -- of what was asked for
    created_by  TEXT NOT NULL, -- name
    creator_id  TEXT NOT NULL, -- user id; '' for other callers
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL, -- 0 if without an end
    removed_by  TEXT NOT NULL,
    remover_id  TEXT NOT NULL,
    removed_at  BIGINT NOT NULL, -- 0 while not removed
    UNIQUE (org_id, number)
);
CREATE INDEX policy_exceptions_by_pack ON policy_exceptions (pack_id);

-- The stacks of the targets of exceptions.
CREATE TABLE policy_exception_stacks (
    exception_id TEXT NOT NULL REFERENCES policy_exceptions (id) ON DELETE CASCADE,
    stack_id     TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    PRIMARY KEY (exception_id, stack_id)
);
CREATE INDEX policy_exception_stacks_by_stack ON policy_exception_stacks (stack_id);

-- The required packs without which an update ended, as JSON; '' for none.
ALTER TABLE updates ADD COLUMN unevaluated TEXT NOT NULL DEFAULT '';

-- Whether the stack's last update ended without a required pack.
ALTER TABLE estate ADD COLUMN unevaluated BIGINT NOT NULL DEFAULT 0;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE estate DROP COLUMN unevaluated;
ALTER TABLE updates DROP COLUMN unevaluated;
DROP TABLE policy_exception_stacks;
DROP TABLE policy_exceptions;
DROP TABLE policy_standings;
DROP TABLE policy_issues;
DROP TABLE policy_violations;
DROP TABLE policy_runs;
