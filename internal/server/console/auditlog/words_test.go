package auditlog

import (
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/store"
)

// TestPhrases fails if an action has no sentence in words.
func TestPhrases(t *testing.T) {
	for _, action := range audit.Actions() {
		if phrase := phrases[action]; phrase == "" || strings.ContainsAny(phrase, "._") {
			t.Errorf("the action %s has the phrase %q: write it in words in words.go", action, phrase)
		}
	}
}

// TestDetail says in words what entries record.
func TestDetail(t *testing.T) {
	for text, c := range map[string]struct {
		action audit.Action
		want   string
	}{
		`{"keys":["operationContext.environmentVariables.A","operationContext.environmentVariables.B","sourceContext.git.branch","sourceContext.git.repoDir"],"version":3}`: {audit.SettingsChanged, "branch, folder and 2 variables, version 3"},
		`{"keys":["operationContext.shell"]}`:                                           {audit.SettingsChanged, "shell"},
		`{"keys":null,"version":3}`:                                                     {audit.SettingsChanged, "version 3"},
		`{"schedule":"b17eacff","kind":"drift","cron":"0 3 * * *"}`:                     {audit.ScheduleCreated, "drift detection, 0 3 * * *"},
		`{"schedule":"x","kind":"ttl","once":"2099-01-02T03:04Z"}`:                      {audit.ScheduleDeleted, "time to live, once, 2099-01-02T03:04Z"},
		`{"team":"added","env":"removed"}`:                                              {audit.StackTagsChanged, "removed env, added team"},
		`{"role":"stack-collaborator","invitation":"x","invitedBy":"ada"}`:              {audit.MemberAdded, "as stack collaborator, invited by ada"},
		`{"from":"member","to":"admin","sole":true}`:                                    {audit.MemberRoleChanged, "from member to administrator, as the only administrator"},
		`{"member":"ada","memberAction":"promote"}`:                                     {audit.TeamChanged, "made ada an administrator of the team"},
		`{"stack":"acme/web/prod","permission":102}`:                                    {audit.TeamChanged, "on acme/web/prod, may write"},
		`{"kind":"org","description":"","admin":true,"expires":"2027-01-01T00:00:00Z"}`: {audit.TokenCreated, "of the organization, administers the organization, expires 2027-01-01T00:00:00Z"},
		`{"deployment":"x","version":4,"operation":"update","initiator":"console"}`:     {audit.DeploymentCreated, "update #4, by console"},
		`{"deployment":"x","version":4,"status":"accepted"}`:                            {audit.DeploymentCancelled, "#4, was accepted"},
		`{"version":"3.276"}`:                                                           {audit.PulumiVersionSet, "to 3.276"},
		`{"storage":-1,"deployments":1}`:                                                {audit.QuotasSet, "storage without a limit, at most 1 deployment at once"},
		`{"with":"link"}`:                                                               {audit.SignedIn, "with a sign-in link"},
		`{"pullRequest":7,"commit":"0123456789","repository":"acme/web","fork":true}`:   {audit.PullRequestApproved, "#7 of acme/web at 0123456, from a fork"},
		`{"key":true}`:             {audit.BackupWritten, "with the master key"},
		`{"pool":"b17eacff"}`:      {audit.AgentDrained, ""},
		`{"newMember":"<b>x</b>"}`: {audit.TeamDeleted, "new member <b>x</b>"},
		`{"pack":"aws","policy":"a, b","because":"known","resources":2}`: {audit.ExceptionGiven, "because: known, 2 resources, of the policy pack aws, policy a, b"},
		`{"added stacks":["web/prod"],"enabled":["aws 1.0.0"]}`:          {audit.PolicyGroupChanged, "added stacks web/prod, enabled aws 1.0.0"},
		`{"revision":2,"replacement":3,"because":"leaked"}`:              {audit.EnvironmentRetracted, "because: leaked, revision 2, replaced by revision 3"},
		`{"team":"added"}`:              {audit.EnvironmentTagsChanged, "added team"},
		`{"deletionProtection":"on"}`:   {audit.EnvironmentSettingsSet, "deletion protection on"},
		`{"tag":"stable","revision":2}`: {audit.EnvironmentVersionSet, "revision 2, tag stable"},
		`no JSON`:                       {audit.ScheduleCreated, "no JSON"},
	} {
		if got := Detail(store.AuditEntry{Action: string(c.action), Detail: text}); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.action, text, got, c.want)
		}
	}
}

var camel = regexp.MustCompile(`[a-z][A-Z]`)

// TestRawNames lets no name of a member appear in a detail.
func TestRawNames(t *testing.T) {
	for _, s := range sayings {
		d := detail{}
		for _, name := range s.names {
			d[name] = "value"
		}
		for _, part := range d.words(audit.TeamChanged) {
			if camel.MatchString(part) || strings.Contains(part, ": ") && !strings.HasPrefix(part, "because: ") {
				t.Errorf("%v is %q", s.names, part)
			}
		}
	}
}
