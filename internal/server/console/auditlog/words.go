package auditlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// phrases say what an entry records, after the name of who did it. Each action has one.
var phrases = map[audit.Action]string{
	audit.OrganizationCreated:    "created the organization",
	audit.OrganizationRenamed:    "renamed the organization",
	audit.OrganizationDeleted:    "deleted the organization",
	audit.OrganizationReleased:   "released deployments after the restore",
	audit.QuotasSet:              "changed quotas",
	audit.DefaultPermissionSet:   "changed the default permission",
	audit.PulumiVersionSet:       "changed the version of pulumi",
	audit.ProjectReadsSet:        "changed what jobs of one project read",
	audit.MemberAdded:            "added the member",
	audit.MemberRoleChanged:      "changed the role of",
	audit.MemberRoleKept:         "kept the role of",
	audit.MemberRemoved:          "removed the member",
	audit.InvitationMade:         "invited",
	audit.InvitationRevoked:      "revoked the invitation of",
	audit.TeamCreated:            "created the team",
	audit.TeamChanged:            "changed the team",
	audit.TeamDeleted:            "deleted the team",
	audit.TokenCreated:           "made a token",
	audit.TokenRevoked:           "revoked the token",
	audit.TokenExchanged:         "exchanged an identity token",
	audit.PoolCreated:            "created the pool",
	audit.PoolChanged:            "changed the pool",
	audit.PoolDeleted:            "deleted the pool",
	audit.PoolDefaultSet:         "changed the default pool",
	audit.PoolQueueMoved:         "moved the queue of the pool",
	audit.AgentDrained:           "drained the agent",
	audit.AgentResumed:           "resumed the agent",
	audit.IssuerCreated:          "registered the issuer",
	audit.IssuerChanged:          "changed the issuer",
	audit.IssuerPoliciesChanged:  "changed the rules of the issuer",
	audit.IssuerDeleted:          "deleted the issuer",
	audit.WebhookCreated:         "created the webhook",
	audit.WebhookChanged:         "changed the webhook",
	audit.WebhookDeleted:         "deleted the webhook",
	audit.StackCreated:           "created the stack",
	audit.StackRenamed:           "renamed the stack",
	audit.StackTransferred:       "transferred the stack",
	audit.StackDeleted:           "deleted the stack",
	audit.StackRestored:          "restored the stack",
	audit.StackPurged:            "removed the deleted stack for good",
	audit.StackOwnerChanged:      "changed the owner",
	audit.StackPermissionChanged: "changed permissions",
	audit.StackGrantAdded:        "granted reads of outputs",
	audit.StackGrantChanged:      "changed a grant of outputs",
	audit.StackGrantRemoved:      "ended a grant of outputs",
	audit.StackTagsChanged:       "changed tags",
	audit.StackConfigChanged:     "changed the configuration",
	audit.StackAnnotated:         "annotated the stack",
	audit.StateImported:          "imported a state",
	audit.UpdateCancelled:        "cancelled an update",
	audit.SettingsChanged:        "changed deploy settings",
	audit.SettingsDeleted:        "deleted deploy settings",
	audit.ScheduleCreated:        "created a schedule",
	audit.ScheduleChanged:        "changed a schedule",
	audit.SchedulePaused:         "paused a schedule",
	audit.ScheduleResumed:        "resumed a schedule",
	audit.ScheduleDeleted:        "deleted a schedule",
	audit.DeploymentCreated:      "requested a deployment",
	audit.DeploymentCancelled:    "cancelled a deployment",
	audit.DeploymentForced:       "forced the end of a deployment",
	audit.CacheCleared:           "cleared the cache",
	audit.DeploymentsPaused:      "paused deployments",
	audit.DeploymentsResumed:     "resumed deployments",
	audit.IntegrationCreated:     "created the integration",
	audit.IntegrationChanged:     "changed the integration",
	audit.IntegrationDeleted:     "deleted the integration",
	audit.PullRequestApproved:    "approved a pull request",
	audit.PolicyIssueChanged:     "changed a policy issue of",
	audit.ExceptionGiven:         "gave the policy exception",
	audit.ExceptionRemoved:       "removed the policy exception",
	audit.PolicyPackCreated:      "began to publish the policy pack",
	audit.PolicyPackPublished:    "published the policy pack",
	audit.PolicyPackRemoved:      "removed a version of the policy pack",
	audit.PolicyGroupCreated:     "created the policy group",
	audit.PolicyGroupChanged:     "changed the policy group",
	audit.PolicyGroupDeleted:     "deleted the policy group",
	audit.EnvironmentCreated:     "created the environment",
	audit.EnvironmentSourceSet:   "set the repository of environments",
	audit.EnvironmentSourceAsked: "asked for a synchronization of environments with the repository",
	audit.EnvironmentSourceEnded: "ended the synchronization of environments with the repository",
	audit.EnvironmentChanged:     "changed the environment",
	audit.EnvironmentRetracted:   "retracted a revision of the environment",
	audit.EnvironmentVersionSet:  "changed version tags of the environment",
	audit.EnvironmentTagsChanged: "changed tags of the environment",
	audit.EnvironmentSettingsSet: "changed settings of the environment",
	audit.EnvironmentDeleted:     "deleted the environment",
	audit.EnvironmentGrantAdded:  "granted openings of the environment",
	audit.EnvironmentGrantSet:    "changed a grant of the environment",
	audit.EnvironmentGrantEnded:  "ended a grant of the environment",
	audit.EnvironmentDecrypted:   "decrypted the environment",
	audit.EnvironmentOpened:      "opened the environment",
	audit.EnvironmentToken:       "requested an identity token of the environment",
	audit.DefaultEnvironmentSet:  "changed the default permission on environments",
	audit.SecretsDecrypted:       "decrypted secrets",
	audit.DecryptionReported:     "decrypted secrets without the server",
	audit.StateExported:          "exported the state",
	audit.SecretsSent:            "received the secrets of a deployment",
	audit.UserCreated:            "created the user",
	audit.UserDisabled:           "disabled the user",
	audit.UserEnabled:            "enabled the user",
	audit.UserDeleted:            "deleted the user",
	audit.UserHandedOver:         "handed over what belongs to",
	audit.SignedIn:               "signed in",
	audit.SignInFailed:           "failed to sign in",
	audit.SignInLinkMade:         "made a sign-in link for",
	audit.SessionEnded:           "ended a session of",
	audit.IdentityConnected:      "connected an account of",
	audit.IdentityRemoved:        "removed an account of",
	audit.PasskeyAdded:           "added a passkey of",
	audit.PasskeyRemoved:         "removed a passkey of",
	audit.BackupWritten:          "wrote a backup",
}

// Did says what an entry with an action records, after the name of who did it.
func Did(action audit.Action) string {
	if phrase, ok := phrases[action]; ok {
		return phrase
	}
	what, how, _ := strings.Cut(string(action), ".")
	return strings.ReplaceAll(how+" "+what, "-", " ")
}

// Detail says in words what else an entry records. It contains neither names of members nor ids.
func Detail(e store.AuditEntry) string {
	var d detail
	if json.Unmarshal([]byte(e.Detail), &d) != nil {
		return e.Detail
	}
	var parts []string
	if a := audit.Action(e.Action); a == audit.StackTagsChanged || a == audit.EnvironmentTagsChanged {
		parts = d.tags()
	} else {
		parts = d.words(audit.Action(e.Action))
	}
	if e.Names != "" {
		parts = append(parts, e.Names)
	}
	return strings.Join(parts, ", ")
}

// detail is the detail of an entry.
type detail map[string]any

// text returns a member as a text; "" if it is missing, empty or false.
func (d detail) text(name string) string {
	switch v := d[name].(type) {
	case nil:
		return ""
	case bool:
		if !v {
			return ""
		}
		return "yes"
	case float64:
		return words.Number(int64(v))
	case []any:
		list := make([]string, len(v))
		for i, o := range v {
			list[i] = fmt.Sprint(o)
		}
		return strings.Join(list, ", ")
	default:
		return fmt.Sprint(v)
	}
}

// tags says which tags of a stack changed.
func (d detail) tags() []string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		parts = append(parts, d.text(name)+" "+name)
	}
	return parts
}

// hidden are the members that say nothing to readers: ids, and versions of what is stored.
var hidden = []string{"schedule", "deployment", "update", "invitation", "generation", "subject", "agent", "token", "omitted", "sha256"}

// words returns the parts of a sentence about an entry.
func (d detail) words(action audit.Action) []string {
	var parts []string
	said := slices.Clone(hidden)
	for _, p := range sayings {
		if slices.ContainsFunc(p.names, func(name string) bool { return slices.Contains(said, name) }) {
			continue
		}
		if !slices.ContainsFunc(p.names, func(name string) bool { return d.text(name) != "" }) {
			continue
		}
		said = append(said, p.names...)
		if text := p.say(d, action); text != "" {
			parts = append(parts, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if text := d.text(name); text != "" && !slices.Contains(said, name) {
			parts = append(parts, plain(name)+" "+text)
		}
	}
	return parts
}

// plain returns the name of a member as words.
func plain(name string) string {
	var out strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			out.WriteByte(' ')
			r = unicode.ToLower(r)
		}
		if r == '_' || r == '.' {
			r = ' '
		}
		out.WriteRune(r)
	}
	return strings.TrimSpace(out.String())
}

// saying says what members of a detail mean.
type saying struct {
	names []string
	say   func(d detail, action audit.Action) string
}

// after returns a saying that puts words before the value of a member.
func after(name, before string) saying {
	return saying{[]string{name}, func(d detail, _ audit.Action) string { return strings.TrimSpace(before + " " + d.text(name)) }}
}

// numbered returns a saying about a number of things.
func numbered(name, thing string) saying {
	return saying{[]string{name}, func(d detail, _ audit.Action) string {
		n, _ := d[name].(float64)
		return words.Count(int64(n), thing)
	}}
}

// just returns a saying about a member whose value does not matter.
func just(name, text string) saying {
	return saying{[]string{name}, func(detail, audit.Action) string { return text }}
}

// of returns a saying about a member whose values have words.
func of(name, before string, meanings map[string]string) saying {
	return saying{[]string{name}, func(d detail, _ audit.Action) string {
		value := d.text(name)
		return strings.TrimSpace(before + " " + cmp.Or(meanings[value], value))
	}}
}

var roles = map[string]string{
	identity.RoleMember: "member", identity.RoleAdmin: "administrator", identity.RoleBillingManager: "billing manager", identity.RoleCollaborator: "stack collaborator",
}

var permissions = map[string]string{
	number(store.NoPermission): "no permission", number(store.ReadPermission): "may read", number(store.WritePermission): "may write", number(store.AdminPermission): "may administer",
}

func number(p store.Permission) string { return strconv.Itoa(int(p)) }

// sayings are those of all members, in the order of the sentence.
var sayings = []saying{
	{[]string{"keys"}, func(d detail, _ audit.Action) string {
		list, _ := d["keys"].([]any)
		keys := make([]string, len(list))
		for i, key := range list {
			keys[i] = fmt.Sprint(key)
		}
		return settings(keys)
	}},
	{[]string{"kind", "cron", "once"}, func(d detail, _ audit.Action) string {
		kind := cmp.Or(scheduleKinds[d.text("kind")], kinds[d.text("kind")], d.text("kind"))
		when := d.text("cron")
		if at := d.text("once"); at != "" {
			when = "once, " + at
		}
		return strings.TrimSuffix(strings.TrimPrefix(kind+", "+when, ", "), ", ")
	}},
	{[]string{"member", "memberAction"}, func(d detail, _ audit.Action) string {
		member := d.text("member")
		switch action := d.text("memberAction"); action {
		case "promote":
			return "made " + member + " an administrator of the team"
		case "demote":
			return "made " + member + " a member of the team"
		case "add":
			return "added " + member
		case "remove":
			return "removed " + member
		default:
			return strings.TrimSpace(member + " " + action)
		}
	}},
	{[]string{"operation", "version", "initiator"}, func(d detail, action audit.Action) string {
		version := d.text("version")
		switch what, _, _ := strings.Cut(string(action), "."); {
		case version == "" && action == audit.PulumiVersionSet:
			return "to any"
		case action == audit.PulumiVersionSet:
			return "to " + version
		case what == "deployment" && version != "":
			version = "#" + version
		case version != "" && what == "issuer":
			version = ""
		case version != "":
			version = "version " + version
		}
		text := strings.TrimSpace(d.text("operation") + " " + version)
		if by := d.text("initiator"); by != "" {
			text += ", by " + view.Initiator(by)
		}
		return text
	}},
	after("stack", "on"), after("environment", "on"), after("user", "of"), of("permission", "", permissions), of("role", "as", roles),
	{[]string{"from", "to"}, func(d detail, _ audit.Action) string {
		var parts []string
		for _, name := range []string{"from", "to"} {
			if value := d.text(name); value != "" {
				parts = append(parts, name+" "+cmp.Or(roles[value], value))
			}
		}
		return strings.Join(parts, " ")
	}},
	of("wanted", "instead of", roles), just("sole", "as the only administrator"), after("invitedBy", "invited by"), after("remains", "remains as"),
	of("with", "with a", map[string]string{"provider": "account at an identity provider", "link": "sign-in link", "token": "token", "passkey": "passkey", "invitation": "invitation"}),
	after("name", "named"), after("displayName", "named"), after("description", "described as"), after("passkey", "named"),
	{[]string{"admin"}, func(d detail, _ audit.Action) string {
		if text, ok := d["admin"].(string); ok {
			return "administrator " + text
		}
		return "administers the organization"
	}},
	just("siteAdmin", "administers the server"), after("organization", "in"), after("provider", "at"), after("issuer", "issuer"), after("baseUrl", "at"), after("host", "to"),
	after("format", "format"), just("active", "active"), just("secret", "new secret"), just("webhookSecret", "new secret"), just("credential", "new credential"),
	after("scope", "for"), after("expires", "expires"), after("because", "because:"), after("status", "was"), after("source", "from"),
	{[]string{"pullRequest", "commit", "repository", "fork"}, func(d detail, _ audit.Action) string {
		text := "#" + d.text("pullRequest")
		if r := d.text("repository"); r != "" {
			text += " of " + r
		}
		if c := d.text("commit"); c != "" {
			text += " at " + c[:min(len(c), shortCommit)]
		}
		if d.text("fork") != "" {
			text += ", from a fork"
		}
		return text
	}},
	just("configurable", "configurable"),
	{[]string{"revision", "replacement"}, func(d detail, _ audit.Action) string {
		text := "revision " + d.text("revision")
		if by := d.text("replacement"); by != "" {
			text += ", replaced by revision " + by
		}
		return text
	}},
	after("tag", "tag"), just("removed", "removed"), after("deletionProtection", "deletion protection"), numbered("revisions", "revision"),
	numbered("policies", "rule"), numbered("objects", "object"), numbered("schedules", "schedule"), numbered("sessions", "session"), numbered("tokens", "token"),
	numbered("members", "member"), numbered("stacks", "stack"), numbered("resources", "resource"), numbered("pools", "pool"),
	{[]string{"storage"}, func(d detail, _ audit.Action) string { return "storage " + bytesOf(d, "storage") }},
	{[]string{"deployments"}, func(d detail, action audit.Action) string {
		n, _ := d["deployments"].(float64)
		if action == audit.QuotasSet {
			return "at most " + words.Count(int64(n), "deployment") + " at once"
		}
		return words.Count(int64(n), "deployment")
	}},
	{[]string{"bytes"}, func(d detail, _ audit.Action) string { return bytesOf(d, "bytes") }},
	{[]string{"deleted"}, func(d detail, _ audit.Action) string {
		at, err := time.Parse(time.RFC3339Nano, d.text("deleted"))
		if err != nil {
			return ""
		}
		return "deleted on " + at.UTC().Format("2 Jan 2006")
	}},
	after("pack", "of the policy pack"), after("policy", "policy"), after("target", "for"), just("wholeStack", "for the whole stack"), after("priority", "priority"),
	after("backup", "of the backup of"), just("key", "with the master key"),
	// The name of a pool is not recorded, only its id.
	{[]string{"pool"}, func(detail, audit.Action) string { return "" }},
}

// shortCommit is the number of characters of a commit in a sentence.
const shortCommit = 7

func bytesOf(d detail, name string) string {
	n, _ := d[name].(float64)
	if n < 0 {
		return "without a limit"
	}
	return words.Bytes(int64(n))
}

// kinds are the words for the kinds of tokens.
var kinds = map[string]string{
	string(store.PersonalToken): "of a user", string(store.OrgToken): "of the organization", string(store.TeamToken): "of a team", string(store.PoolToken): "of a pool",
}

// scheduleKinds are the words for the kinds of schedules.
var scheduleKinds = map[string]string{
	string(store.CustomSchedule): "deployment", string(store.DriftSchedule): "drift detection", string(store.TTLSchedule): "time to live",
}

// named are the words for keys of deploy settings.
var named = map[string]string{
	"branch": "branch", "repoUrl": "repository", "repoURL": "repository", "repoDir": "folder", "commit": "commit", "preRunCommands": "pre-run commands",
	"executorContext": "image", "executorImage": "image", "agentPoolID": "pool", "gitHub": "pull requests",
	"oidc": "cloud credentials", "skipInstallDependencies": "installing of dependencies", "skipIntermediateDeployments": "superseded deployments",
	"remediateIfDriftDetected": "remediation of drift", "deleteAfterDestroy": "deletion after a destroy",
}

// settings names the settings that changed.
func settings(keys []string) string {
	var list []string
	variables := 0
	for _, key := range keys {
		if strings.Contains(key, "environmentVariables") {
			variables++
			continue
		}
		word := ""
		for part := range strings.SplitSeq(key, ".") {
			word = cmp.Or(named[part], word)
		}
		if word = cmp.Or(word, key[strings.LastIndex(key, ".")+1:]); !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	if variables > 0 {
		list = append(list, words.Count(variables, "variable"))
	}
	return words.And(list)
}
