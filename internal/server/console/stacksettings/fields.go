package stacksettings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/workflow"
)

// fieldChange is a changed setting, with its values in words.
type fieldChange struct {
	Member, Field, Before, After string
	// Had reports whether the setting had a value, and Origin says where its value comes from if it has none now.
	Had    bool
	Origin string
}

// field is what the form calls a setting, what a missing value means, and where that comes from.
type field struct{ label, missing, origin string }

// The members of settings that have several fields, or several forms.
const (
	imageMember     = "executorContext.executorImage"
	authMember      = "sourceContext.git.gitAuth"
	variablesMember = "operationContext.environmentVariables"
	postRunMember   = "operationContext.postRunCommands"
)

// The origins of values that a stack inherits.
const (
	fromOrg      = "from the organization"
	fromAgent    = "from the agent"
	fromRepo     = "from the repository"
	fromTriggers = "from the triggers"
	byDefault    = "default"
)

// fields are the settings by their members in JSON.
var fields = map[string]field{
	"agentPoolID":                                     {"Pool", "the organization's default", fromOrg},
	"sourceContext.git.repoUrl":                       {label: "Repository"},
	"sourceContext.git.branch":                        {label: "Branch"},
	"sourceContext.git.commit":                        {label: "Commit"},
	"sourceContext.git.repoDir":                       {"Folder", "the root of the repository", byDefault},
	"sourceContext.git.gitAuth.accessToken":           {label: "Credentials: access token"},
	"sourceContext.git.gitAuth.sshAuth.sshPrivateKey": {label: "Credentials: SSH key"},
	"sourceContext.git.gitAuth.basicAuth.userName":    {label: "Credentials: user name"},
	"sourceContext.git.gitAuth.basicAuth.password":    {label: "Credentials: password"},
	imageMember:                       {"Image", "the agent's default", fromAgent},
	variablesMember:                   {label: "Variables"},
	environmentsMember:                {label: "Environments"},
	authMember:                        {label: "Credentials"},
	"operationContext.preRunCommands": {label: "Commands before the operation"},
	postRunMember:                     {label: "Commands after the operation"},
	"operationContext.options.shell":  {label: "Shell"},
	"operationContext.options.skipInstallDependencies":     {label: "Skip installing dependencies"},
	"operationContext.options.skipIntermediateDeployments": {label: "Skip queued deployments that a newer one supersedes"},
	"operationContext.options.remediateIfDriftDetected":    {label: "Remediate drift when a detection finds it"},
	"operationContext.options.deleteAfterDestroy":          {label: "Delete the stack after a destroy"},
	"concurrencyGroup":                           {label: "Concurrency group"},
	"cacheOptions.enable":                        {label: "Keep the workspace for the next deployment"},
	"operationContext.oidc.aws.roleArn":          {label: "AWS: role ARN"},
	"operationContext.oidc.aws.sessionName":      {label: "AWS: session name"},
	"operationContext.oidc.aws.duration":         {label: "AWS: duration"},
	"operationContext.oidc.azure.clientId":       {label: "Azure: client id"},
	"operationContext.oidc.azure.tenantId":       {label: "Azure: tenant id"},
	"operationContext.oidc.azure.subscriptionId": {label: "Azure: subscription id"},
	"operationContext.oidc.gcp.projectId":        {label: "Google Cloud: project number"},
	"operationContext.oidc.gcp.workloadPoolId":   {label: "Google Cloud: workload pool"},
	"operationContext.oidc.gcp.providerId":       {label: "Google Cloud: provider"},
	"operationContext.oidc.gcp.serviceAccount":   {label: "Google Cloud: service account"},
	"vcs.provider":                               {label: "Git host"},
	"vcs.installationId":                         {label: "Integration"},
	"vcs.repository":                             {label: "Watched repository"},
	"vcs.deployCommits":                          {label: "Deploy commits on the branch"},
	"vcs.previewPullRequests":                    {label: "Preview pull requests against the branch"},
	"vcs.deployTags":                             {label: "Deploy tags"},
	"vcs.pullRequestTemplate":                    {label: "Make a review stack for each pull request"},
	"vcs.paths":                                  {label: "Paths"},
	"vcs.tagFilters":                             {label: "Tags"},
	"vcs.reviewStackLabels":                      {label: "Labels for review stacks"},
	"vcs.reviewStackTTL":                         {label: "Destroy review stacks after"},
}

const variablePrefix = variablesMember + "."

// fieldOf returns the field of a member. Members that the form does not have keep their names.
func fieldOf(member string) field {
	if name, ok := strings.CutPrefix(member, variablePrefix); ok {
		return field{label: "Variable " + name}
	}
	if f, ok := fields[member]; ok {
		return f
	}
	return field{label: member}
}

// words returns a value in words, where other is the value with which it is compared.
func (f field) words(value, other any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	if _, ok := other.(bool); ok {
		return "no"
	}
	if f.missing != "" {
		return f.missing
	}
	return "none"
}

// changedFields lists the settings that differ, without secrets. poolName returns the name of a pool.
func changedFields(before, after *workflow.Settings, poolName func(id string) string) ([]fieldChange, error) {
	known := map[string]bool{}
	old, err := members(before, func(ciphertext string) string {
		known[ciphertext] = true
		return diff.Secret
	})
	if err != nil {
		return nil, err
	}
	now, err := members(after, func(ciphertext string) string {
		if known[ciphertext] {
			return diff.Secret
		}
		return "[secret, new value]"
	})
	if err != nil {
		return nil, err
	}
	for _, list := range []map[string]any{old, now} {
		if id, ok := list["agentPoolID"].(string); ok {
			list["agentPoolID"] = poolName(id)
		}
	}
	names := maps.Clone(old)
	maps.Copy(names, now)
	var out []fieldChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := fieldOf(name)
		if from, to := f.words(old[name], now[name]), f.words(now[name], old[name]); from != to {
			c := fieldChange{Member: name, Field: f.label, Before: from, After: to, Had: old[name] != nil}
			if now[name] == nil {
				c.Origin = f.origin
			}
			out = append(out, c)
		}
	}
	// The form begins with the source.
	slices.SortStableFunc(out, func(a, b fieldChange) int { return place(a.Member) - place(b.Member) })
	return out, nil
}

func place(member string) int {
	if strings.HasPrefix(member, "sourceContext.") {
		return 0
	}
	return 1
}

// members returns the members of settings that contain a value, by their paths. hide returns the text
// for a secret.
func members(set *workflow.Settings, hide func(ciphertext string) string) (map[string]any, error) {
	out := map[string]any{}
	if set == nil {
		return out, nil
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encoding settings: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(doc, &tree); err != nil {
		return nil, fmt.Errorf("decoding settings: %w", err)
	}
	collect(out, "", tree, hide)
	if commands := set.PostRunCommands(); len(commands) > 0 {
		out[postRunMember] = postRunText(commands)
	}
	// An image is a string or an object.
	if image, ok := out[imageMember+".reference"]; ok {
		delete(out, imageMember+".reference")
		out[imageMember] = image
	}
	// Older settings have their triggers in another member.
	for name, value := range maps.Clone(out) {
		if trigger, ok := strings.CutPrefix(name, "gitHub."); ok {
			delete(out, name)
			out["vcs."+trigger], out["vcs.provider"] = value, "github"
		}
	}
	return out, nil
}

func collect(out map[string]any, path string, tree map[string]any, hide func(ciphertext string) string) {
	if text, ok := tree["ciphertext"].(string); ok && path+"." != variablePrefix {
		out[path] = hide(text)
		return
	}
	for name, value := range tree {
		if path != "" {
			name = path + "." + name
		}
		switch v := value.(type) {
		case map[string]any:
			collect(out, name, v, hide)
		case []any:
			lines := make([]string, len(v))
			for i, e := range v {
				lines[i] = fmt.Sprint(e)
			}
			if len(lines) > 0 {
				out[name] = strings.Join(lines, "\n")
			}
		case bool:
			out[name] = v
		case nil, string:
			if v != nil && v != "" {
				out[name] = v
			}
		default:
			out[name] = fmt.Sprint(v)
		}
	}
}
