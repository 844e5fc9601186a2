package storetest

import "workflowagent/internal/server/store/scope"

// table says to whom the rows of a table belong. A write may change a row if it holds the lock of one of the
// row's owners, or that of the organization or the server to which it belongs. Expressions refer to the row
// as r. An expression without a value means that the row follows another one, which is checked itself.
type table struct {
	owners []owner
	org    string // expression for the id of the organization
	// free are the columns that writes may change without a lock, because such a statement commutes with all
	// others, or repeats the condition under which it is right.
	free []string
	// added is set if a write may add rows that shares the lock of the organization: only a unique
	// constraint matters.
	added bool
	// append and expire are set if a write may add or remove rows without a lock.
	append, expire bool
	why            string // of what is free
}

type owner struct {
	level scope.Level
	key   string
}

func user(key string) []owner         { return []owner{{scope.LevelUser, key}} }
func organization(key string) []owner { return []owner{{scope.LevelOrganization, key}} }
func repository(key string) []owner   { return []owner{{scope.LevelRepository, key}} }
func stack(key string) []owner        { return []owner{{scope.LevelStack, key}} }
func webhook(key string) []owner      { return []owner{{scope.LevelWebhook, key}} }
func agent(key string) []owner        { return []owner{{scope.LevelAgent, key}} }

const (
	orgOfStack       = "(SELECT org_id FROM stack_owners WHERE id = r.stack_id)"
	orgOfPool        = "(SELECT org_id FROM agent_pools WHERE id = r.pool_id)"
	orgOfIntegration = "(SELECT org_id FROM vcs_integrations WHERE id = r.integration_id)"
	orgOfRepository  = "(SELECT i.org_id FROM vcs_repos p JOIN vcs_integrations i ON i.id = p.integration_id WHERE p.id = r.repo_id)"
	orgOfEnvironment = "(SELECT org_id FROM environments WHERE id = r.environment_id)"
	orgOfWebhook     = "(SELECT org_id FROM webhooks WHERE id = r.hook_id)"
	stackOfDeploy    = "(SELECT stack_id FROM deployments WHERE id = r.deployment_id)"
	stackOfSchedule  = "(SELECT stack_id FROM schedules WHERE id = r.schedule_id)"
)

// everything is free in a table of rows that are only added, counted up and removed because of their age.
func everything(why string) table {
	return table{append: true, expire: true, free: []string{"*"}, why: why}
}

// tables are all tables, except those of the blobs and of the migrations.
var tables = map[string]table{
	"activity_visits": {owners: user("r.user_id"), expire: true, why: "visits of removed organizations"},
	"acme_values":     everything("one server at a time obtains certificates"),
	"agent_pools": {
		owners: organization("r.org_id"), free: []string{"last_seen_at", "last_job_at"}, why: "times only grow",
	},
	"audit_entries":       everything("entries are added, or count reads in one statement"),
	"collaborators":       {owners: stack("r.stack_id"), org: orgOfStack},
	"deleted_stacks":      {owners: stack("r.stack_id"), org: "r.org_id"},
	"deployment_briefs":   {owners: stack(stackOfDeploy)},
	"deployment_keys":     {owners: stack("r.stack_id"), org: orgOfStack, expire: true, why: "old keys"},
	"deployment_settings": {owners: stack("r.stack_id"), org: orgOfStack},
	"deployments":         {owners: stack("r.stack_id"), org: "r.org_id"},
	"drained_agents":      {owners: organization(orgOfPool)},
	"engine_events": {
		owners: stack("(SELECT stack_id FROM updates WHERE id = r.update_id)"), expire: true, why: "old events",
	},
	"environment_checks":  {owners: organization("r.org_id")},
	"environment_origins": {owners: organization(orgOfEnvironment)},
	"environment_sources": {
		owners: organization("r.org_id"), free: []string{"due_at", "hook_at"}, why: "an additional poll does no harm",
	},
	"environment_grant_exclusions": { // an exclusion follows its grant
		owners: stack("(SELECT r.stack_id FROM environment_grants WHERE id = r.grant_id)"), org: orgOfStack,
	},
	"environment_grants": {
		owners: append(organization(orgOfEnvironment), stack("(SELECT r.reader_id FROM environments WHERE id = r.environment_id)")...),
	},
	"environment_masks":         everything("rows are added once, and removed because of their age"),
	"environment_openings":      everything("the last opening wins; rows are removed with their environments"),
	"environment_sessions":      everything("rows are added, and removed because of their age, or with their token"),
	"environment_drafts":        everything("drafts are added, and removed because of their age, or with their token"),
	"environment_imports":       {owners: organization(orgOfEnvironment)},
	"environment_revision_tags": {owners: organization(orgOfEnvironment)},
	"environment_revisions":     {owners: organization(orgOfEnvironment)},
	"environment_tags":          {owners: organization(orgOfEnvironment)},
	"environment_webhooks":      {owners: webhook("r.hook_id"), org: orgOfWebhook},
	"environments":              {owners: organization("r.org_id")},
	"estate":                    {owners: stack("r.stack_id"), org: orgOfStack, added: true},
	"former_names":              {owners: organization("r.org_id")},
	// An exclusion follows its grant.
	"grant_exclusions": {owners: stack("(SELECT r.stack_id FROM stack_grants WHERE id = r.grant_id)"), org: orgOfStack},
	"identities":       {owners: user("r.user_id"), free: []string{"used_at", "name"}, why: "the last sign-in wins"},
	"installation": {
		owners: []owner{{scope.LevelServer, "CASE WHEN r.name <> 'writable' AND r.name NOT LIKE 'running-server-%' THEN '' END"}},
		why:    "the row writable only tests whether the disk accepts writes, and each server writes its own presence",
	},
	"invitations":          {owners: organization("r.org_id"), expire: true, why: "old invitations"},
	"jobs":                 {owners: stack("r.stack_id"), org: "r.org_id"},
	"journal_batches":      {owners: stack("(SELECT stack_id FROM states WHERE state_key = r.state_key)")},
	"managed_environments": {owners: organization(orgOfEnvironment)},
	"members":              {owners: organization("r.org_id")},
	"oidc_issuers":         {owners: organization("r.org_id"), free: []string{"last_used_at"}, why: "times only grow"},
	"oidc_policies":        {owners: organization("(SELECT org_id FROM oidc_issuers WHERE id = r.issuer_id)")},
	"org_queues":           {owners: organization("r.org_id")},
	"organization_storage": everything("one server measures at a time"),
	"organizations":        {owners: organization("r.id")},
	"passkeys":             {owners: user("r.user_id")},
	"pool_agents": {
		owners: agent("r.agent_id"), org: orgOfPool, expire: true, free: []string{"last_seen_at", "live_until", "every_us"},
		why: "signs of life only grow, and name the session",
	},
	"policy_evaluations": {
		owners: stack("r.stack_id"), org: "r.org_id", added: true, expire: true, free: []string{"last_seen_at"},
		why: "old evaluations; the pauses of all servers shift times",
	},
	"policy_exception_stacks": {
		owners: append(organization("(SELECT org_id FROM policy_exceptions WHERE id = r.exception_id)"), stack("r.stack_id")...),
	},
	"policy_pack_environments": {
		owners: organization("(SELECT org_id FROM policy_groups WHERE id = r.group_id)"),
	},
	"policy_exceptions":    {owners: organization("r.org_id")},
	"policy_group_packs":   {owners: organization("(SELECT org_id FROM policy_groups WHERE id = r.group_id)")},
	"policy_group_stacks":  {owners: append(organization("(SELECT org_id FROM policy_groups WHERE id = r.group_id)"), stack("r.stack_id")...)},
	"policy_groups":        {owners: organization("r.org_id")},
	"policy_issues":        {owners: stack("r.stack_id"), org: orgOfStack, expire: true, why: "issues that were fixed long ago"},
	"policy_pack_versions": {owners: organization("(SELECT org_id FROM policy_packs WHERE id = r.pack_id)")},
	"policy_packs":         {owners: organization("r.org_id")},
	"policy_runs":          {owners: stack("(SELECT stack_id FROM updates WHERE id = r.update_id)"), expire: true, why: "old updates that no client has started"},
	"policy_standings":     {owners: stack("r.stack_id"), org: orgOfStack},
	"policy_violations": {
		owners: stack("(SELECT stack_id FROM updates WHERE id = r.update_id)"), expire: true, why: "those of old events",
	},
	"resource_changes":   everything("rows are added, and removed because of their age"),
	"review_stacks":      {owners: append(repository("r.repo_id"), stack("r.stack_id")...), org: "r.org_id"},
	"schedule_events":    {owners: stack(stackOfSchedule), expire: true, why: "old events"},
	"schedules":          {owners: stack("r.stack_id"), org: orgOfStack, expire: true, why: "schedules that fired long ago"},
	"server_beats":       everything("the newest beat counts"),
	"sessions":           {owners: user("r.user_id"), expire: true, free: []string{"seen_at"}, why: "times only grow; old sessions"},
	"sign_in_links":      {owners: user("r.user_id"), expire: true, why: "only one sign-in removes the row of a link"},
	"signing_keys":       {owners: []owner{{scope.LevelServer, "''"}}},
	"stack_annotations":  {owners: stack("r.stack_id"), org: orgOfStack},
	"stack_environments": {owners: append(stack("r.stack_id"), organization(orgOfEnvironment)...), org: orgOfStack},
	"stack_grants":       {owners: append(stack("r.stack_id"), stack("r.reader_id")...), org: orgOfStack},
	"stack_queues":       {owners: stack("r.stack_id"), org: orgOfStack},
	"stack_references":   {owners: stack("r.stack_id"), org: orgOfStack},
	"resource_names":     {owners: stack("r.stack_id"), org: orgOfStack},
	"stack_tags":         {owners: stack("r.stack_id"), org: orgOfStack},
	"stacks":             {owners: stack("r.id"), org: "(SELECT COALESCE(MAX(org_id), r.org_id) FROM deleted_stacks WHERE stack_id = r.id)", added: true},
	"stars":              {owners: user("r.user_id"), expire: true, why: "marks of removed stacks"},
	"states":             {owners: stack("r.stack_id"), org: orgOfStack},
	"team_environments":  {owners: organization("(SELECT org_id FROM teams WHERE id = r.team_id)")},
	"team_members":       {owners: organization("(SELECT org_id FROM teams WHERE id = r.team_id)")},
	"team_stacks":        {owners: append(organization("(SELECT org_id FROM teams WHERE id = r.team_id)"), stack("(SELECT r.stack_id FROM teams WHERE id = r.team_id)")...)},
	"teams":              {owners: organization("r.org_id")},
	"tokens": {
		owners: append(stack("NULLIF(r.stack_id, '')"), user("NULLIF(r.user_id, '')")...), org: "r.org_id", added: true, expire: true,
		free: []string{"last_used_at"}, why: "times only grow; a removed token ends what it permits",
	},
	"updates":         {owners: stack("r.stack_id"), org: orgOfStack, expire: true, why: "old updates that no client has started"},
	"used_challenges": everything("only one sign-in adds the row of a challenge"),
	"users":           {owners: user("r.id")},
	"views":           {owners: user("r.user_id"), expire: true, why: "views of removed organizations"},
	"vcs_checkouts":   {owners: stack(stackOfDeploy)},
	"vcs_decisions": {
		owners: append(stack("r.stack_id"), repository("(SELECT repo_id FROM vcs_events WHERE id = r.event_id)")...),
	},
	"vcs_events": {
		owners: repository("r.repo_id"), org: "r.org_id", append: true, expire: true, why: "events are added once; old events",
	},
	"vcs_integrations": {
		owners: organization("r.org_id"), free: []string{"deliveries_at", "refused_at", "problem"},
		why: "times only grow; a note about the credentials repeats what it was derived from",
	},
	"vcs_pulls": {owners: repository("r.repo_id"), org: orgOfRepository},
	"vcs_refs":  {owners: repository("r.repo_id"), org: orgOfRepository},
	"vcs_reports": {
		owners: repository("r.repo_id"), org: orgOfIntegration, append: true, expire: true, free: []string{"wanted", "wanted_at", "try_at", "note"},
		why: "a change counts up what is wanted; old reports",
	},
	"vcs_repos": {
		owners: repository("r.id"), org: orgOfIntegration, added: true, free: []string{"poll_at"}, why: "an additional poll does no harm",
	},
	"vcs_runs": {owners: append(stack("r.stack_id"), repository("(SELECT repo_id FROM vcs_pulls WHERE id = r.pull_id)")...)},
	"vcs_watches": {
		owners: append(stack("r.stack_id"), repository("r.repo_id")...), org: orgOfIntegration,
	},
	"webhook_deliveries": {owners: webhook("r.hook_id"), org: orgOfWebhook, append: true, expire: true, why: "deliveries are added; old ones"},
	"webhook_events":     everything("events are added, and removed because of their age"),
	"webhook_senders":    {owners: webhook("r.hook_id"), org: orgOfWebhook, append: true, why: "an insertion does nothing if the row exists"},
	"webhooks":           {owners: append(webhook("r.id"), stack("NULLIF(r.stack_id, '')")...), org: "r.org_id"},
}

// unowned are the tables that no write changes.
var unowned = []string{"blob_chunks", "goose_db_version", "oldest_programs"}
