package stacksettings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// variable is an environment variable in the settings.
type variable struct {
	Name, Value string
	Secret      bool
}

// origin is the effective value of a setting, and where it comes from.
type origin struct{ Name, Value, From string }

// deployModel is the page of the deployment settings. Auth is the kind of the stored credentials.
type deployModel struct {
	St        store.Stack
	Set       *workflow.Settings
	Version   int64
	Source    string
	Pools     []view.Option
	Variables []variable
	Auth      string
	Effective []origin
	Operate   bool
	Issuer    string
}

func (p *pages) stored(v *page.Visit) (*deployments.StoredSettings, error) {
	set, err := p.Deployments.Settings(v.Context(), v.Stack)
	if fault.KindOf(err) == fault.KindNotFound {
		return nil, nil //nolint:nilnil // the stack has no settings
	}
	return set, err
}

func (p *pages) deploy(v *page.Visit) (view.Page, error) { return p.deployPage(v, "") }

func (p *pages) deployPage(v *page.Visit, problem string) (view.Page, error) {
	m := deployModel{St: v.Stack, Set: &workflow.Settings{}, Operate: v.Who.Can(v.Stack, identity.Operate), Issuer: p.Issuer}
	stored, err := p.stored(v)
	if err != nil {
		return view.Page{}, err
	}
	if stored != nil {
		m.Set, m.Version, m.Source = &stored.Settings, stored.Version, stored.Source
	}
	list, preset, err := p.Pools.List(v.Context(), v.Stack.OrgID)
	if err != nil {
		return view.Page{}, err
	}
	if !v.Who.CanReadPools(v.Stack.OrgID) {
		list = pools.Own(list, m.Set.AgentPoolID, preset)
	}
	m.Pools = poolOptions(list, preset)
	m.Variables, m.Auth = variables(m.Set), authKind(m.Set)
	m.Effective = effective(m.Set, list, preset)
	return settingsPage(v, "", problem, deployForm(m)), nil
}

// poolOptions lists the pools with their agents. The first option names the inherited default.
func poolOptions(list []pools.Overview, preset string) []view.Option {
	inherited := view.Option{Text: "The organization's default pool, which is not set"}
	out := make([]view.Option, 0, len(list)+1)
	out = append(out, inherited)
	for _, o := range list {
		online := 0
		for _, a := range o.Agents {
			if a.Online {
				online++
			}
		}
		text := o.Name
		if o.Agents != nil {
			text = fmt.Sprintf("%s (%s, %d online)", o.Name, view.Count(int64(len(o.Agents)), "agent"), online)
		}
		if o.ID == preset {
			out[0].Text = "The organization's default pool: " + text
		}
		out = append(out, view.Option{Value: o.ID, Text: text})
	}
	return out
}

func variables(set *workflow.Settings) []variable {
	if set.OperationContext == nil {
		return nil
	}
	env := set.OperationContext.EnvironmentVariables
	out := make([]variable, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		v := variable{Name: name, Secret: value.IsSecret()}
		if !v.Secret {
			v.Value, _ = value.Value()
		}
		out = append(out, v)
	}
	return out
}

func authKind(set *workflow.Settings) string {
	git := set.Git()
	switch {
	case git == nil || git.GitAuth == nil:
		return ""
	case git.GitAuth.SSHAuth != nil:
		return "SSH key"
	case git.GitAuth.BasicAuth != nil:
		return "user name and password"
	default:
		return "access token"
	}
}

func imageOf(set *workflow.Settings) string {
	if set.ExecutorContext == nil || set.ExecutorContext.ExecutorImage == nil {
		return ""
	}
	return set.ExecutorContext.ExecutorImage.Reference
}

func gitOf(set *workflow.Settings) workflow.SourceContextGit {
	if git := set.Git(); git != nil {
		return *git
	}
	return workflow.SourceContextGit{}
}

func oidcOf(set *workflow.Settings) (aws workflow.OIDCAWS, azure workflow.OIDCAzure, gcp workflow.OIDCGCP) {
	o := set.OIDC()
	if o == nil {
		return aws, azure, gcp
	}
	if o.AWS != nil {
		aws = *o.AWS
	}
	if o.Azure != nil {
		azure = *o.Azure
	}
	if o.GCP != nil {
		gcp = *o.GCP
	}
	return aws, azure, gcp
}

// effective lists what a deployment would use, and the origin of each value.
func effective(set *workflow.Settings, list []pools.Overview, preset string) []origin {
	const own, org, none = "this stack", "the organization", "the server's default"
	name := func(id string) string {
		for _, o := range list {
			if o.ID == id {
				return o.Name
			}
		}
		return "none: deployments wait until a pool is chosen"
	}
	from := func(value, fallback string) origin {
		if value != "" {
			return origin{Value: value, From: own}
		}
		return origin{Value: fallback, From: none}
	}
	pool := origin{Value: name(cmp.Or(set.AgentPoolID, preset)), From: own}
	if set.AgentPoolID == "" {
		pool.From = org
	}
	pool.Name = "Pool"
	git := gitOf(set)
	out := []origin{pool}
	for _, o := range []struct{ name, value, fallback string }{
		{"Repository", git.RepoURL, "none: the image must contain the program"},
		{"Branch", git.Branch, "the repository's default branch"},
		{"Folder", git.RepoDir, "the root of the repository"},
		{"Image", imageOf(set), "the agent's default image"},
		{"Commands before the operation", strings.Join(set.PreRunCommands(), "; "), "none"},
	} {
		e := from(o.value, o.fallback)
		e.Name = o.name
		out = append(out, e)
	}
	return out
}

// Bounds of the form.
const newVariables = 3

// orNull returns a value of a patch: null removes the member.
func orNull(text string) any {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return text
}

// patch returns the form as a patch of the settings. Its secrets are encrypted, so that the second
// step of the form can carry it.
func (p *pages) patch(v *page.Visit, set *workflow.Settings) ([]byte, error) {
	seal := func(text string) (any, error) {
		return p.Deployments.Encrypt(v.Context(), v.Stack, workflow.SecretValue(text))
	}
	git, err := gitPatch(v, seal)
	if err != nil {
		return nil, err
	}
	env, err := variablePatch(v, set, seal)
	if err != nil {
		return nil, err
	}
	commands := []string{}
	for line := range strings.Lines(v.Form("commands")) {
		if line = strings.TrimSpace(line); line != "" {
			commands = append(commands, line)
		}
	}
	options := map[string]any{}
	for _, name := range []string{"skipInstallDependencies", "skipIntermediateDeployments", "deleteAfterDestroy", "remediateIfDriftDetected"} {
		options[name] = v.Form(name) == "on"
	}
	options["shell"] = orNull(v.Form("shell"))
	doc := map[string]any{
		"agentPoolID": v.Form("pool"), "sourceContext": map[string]any{"git": git},
		"operationContext": map[string]any{"preRunCommands": commands, "environmentVariables": env, "options": options, "oidc": oidcPatch(v)},
	}
	if git == nil {
		doc["sourceContext"] = nil
	}
	if image := strings.TrimSpace(v.Form("image")); image != imageOf(set) {
		doc["executorContext"] = map[string]any{"executorImage": orNull(image)}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding the settings of a form: %w", err)
	}
	return out, nil
}

func gitPatch(v *page.Visit, seal func(string) (any, error)) (any, error) {
	if strings.TrimSpace(v.Form("repository")) == "" {
		return nil, nil //nolint:nilnil // null removes the source
	}
	git := map[string]any{"repoUrl": strings.TrimSpace(v.Form("repository")), "repoDir": orNull(v.Form("folder"))}
	if commit := strings.TrimSpace(v.Form("commit")); commit != "" {
		git["commit"] = commit
	} else {
		git["branch"] = orNull(v.Form("branch"))
	}
	secret := v.Form("git-secret")
	if secret == "" && v.Form("auth") != "none" {
		return git, nil
	}
	sealed, err := seal(secret)
	if err != nil {
		return nil, err
	}
	switch v.Form("auth") {
	case "none":
		git["gitAuth"] = nil
	case "token":
		git["gitAuth"] = map[string]any{"accessToken": sealed}
	case "ssh":
		git["gitAuth"] = map[string]any{"sshAuth": map[string]any{"sshPrivateKey": sealed}}
	case "basic":
		git["gitAuth"] = map[string]any{"basicAuth": map[string]any{"userName": v.Form("git-user"), "password": sealed}}
	}
	return git, nil
}

func variablePatch(v *page.Visit, set *workflow.Settings, seal func(string) (any, error)) (map[string]any, error) {
	env := map[string]any{}
	for _, old := range variables(set) {
		if v.Form("remove:"+old.Name) == "on" {
			env[old.Name] = nil
		}
	}
	for i := range newVariables {
		at := strconv.Itoa(i)
		name, value := strings.TrimSpace(v.Form("name"+at)), v.Form("value"+at)
		if name == "" {
			continue
		}
		env[name] = value
		if v.Form("secret"+at) == "on" {
			sealed, err := seal(value)
			if err != nil {
				return nil, err
			}
			env[name] = sealed
		}
	}
	return env, nil
}

// oidcPatch returns the cloud credentials of a form. An empty first field removes a cloud.
func oidcPatch(v *page.Visit) map[string]any {
	out := map[string]any{"aws": nil, "azure": nil, "gcp": nil}
	if v.Form("aws-role") != "" {
		out["aws"] = map[string]any{
			"roleArn": v.Form("aws-role"), "sessionName": cmp.Or(v.Form("aws-session"), "pulumi-deploy"), "duration": orNull(v.Form("aws-duration")),
		}
	}
	if v.Form("azure-client") != "" {
		out["azure"] = map[string]any{"clientId": v.Form("azure-client"), "tenantId": v.Form("azure-tenant"), "subscriptionId": v.Form("azure-subscription")}
	}
	if v.Form("gcp-project") != "" {
		out["gcp"] = map[string]any{
			"projectId": v.Form("gcp-project"), "workloadPoolId": v.Form("gcp-pool"), "providerId": v.Form("gcp-provider"), "serviceAccount": v.Form("gcp-account"),
		}
	}
	return out
}

type reviewModel struct {
	St      store.Stack
	Diff    diff.Diff
	Patch   string
	Version int64
}

// review shows what the form would change.
func (p *pages) review(v *page.Visit) (page.Answer, error) {
	stored, err := p.stored(v)
	if err != nil {
		return page.Answer{}, err
	}
	m := reviewModel{St: v.Stack}
	var before *workflow.Settings
	base := &workflow.Settings{}
	if stored != nil {
		before, base, m.Version = &stored.Settings, &stored.Settings, stored.Version
	}
	patch, err := p.patch(v, base)
	if err == nil {
		m.Patch = string(patch)
		m.Diff, err = settingsDiff(before, patch)
	}
	if err != nil {
		return answer(v, err, "", p.deployPage)
	}
	return page.Once(settingsPage(v, "", "", review(m))), nil
}

// settingsDiff compares settings with the result of a patch.
func settingsDiff(before *workflow.Settings, patch []byte) (diff.Diff, error) {
	after, err := workflow.MergeSettings(before, patch)
	if err == nil {
		err = after.Validate()
	}
	if err != nil {
		return diff.Diff{}, fault.Invalid("The settings are not valid: %s", err)
	}
	known := map[string]bool{}
	from, err := publicTree(before, func(ciphertext string) string {
		known[ciphertext] = true
		return diff.Secret
	})
	if err != nil {
		return diff.Diff{}, err
	}
	to, err := publicTree(after, func(ciphertext string) string {
		if known[ciphertext] {
			return diff.Secret
		}
		return "[secret, new value]"
	})
	if err != nil {
		return diff.Diff{}, err
	}
	step, err := json.Marshal(map[string]any{"op": "update", "old": map[string]any{"inputs": from}, "new": map[string]any{"inputs": to}})
	if err != nil {
		return diff.Diff{}, fmt.Errorf("encoding settings: %w", err)
	}
	return diff.Of(step)
}

// publicTree returns settings as a JSON tree without secrets.
func publicTree(set *workflow.Settings, hide func(ciphertext string) string) (any, error) {
	if set == nil {
		return map[string]any{}, nil
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encoding settings: %w", err)
	}
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		return nil, fmt.Errorf("decoding settings: %w", err)
	}
	return withoutSecrets(tree, hide), nil
}

func withoutSecrets(v any, hide func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["ciphertext"].(string); ok {
			return hide(text)
		}
		for k, e := range v {
			v[k] = withoutSecrets(e, hide)
		}
	case []any:
		for i, e := range v {
			v[i] = withoutSecrets(e, hide)
		}
	}
	return v
}

// sourceConsole is the source of settings that this page stored.
const sourceConsole = "console"

// save stores what the review showed.
func (p *pages) save(v *page.Visit) (page.Answer, error) {
	stored, err := p.stored(v)
	if err != nil {
		return page.Answer{}, err
	}
	version := int64(0)
	if stored != nil {
		version = stored.Version
	}
	if v.Form("version") != strconv.FormatInt(version, 10) {
		err = fault.Conflict("The settings changed in the meantime. Check them and change them again.")
	} else {
		_, err = p.Deployments.PatchSettings(v.Context(), v.Who, v.Stack, []byte(v.Form("patch")), sourceConsole)
	}
	return answer(v, err, "", p.deployPage)
}

// trustSubject is the subject of the identity tokens of a stack's updates.
func trustSubject(st store.Stack) string {
	return fmt.Sprintf("pulumi:deploy:org:%s:project:%s:stack:%s:operation:update:scope:write", st.OrgName, st.Project, st.Name)
}

// awsPolicy is the trust policy of an AWS role for a stack's updates.
func awsPolicy(st store.Stack, issuer string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(issuer, "https://"), "http://")
	doc := map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{
		"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
		"Principal": map[string]any{"Federated": "arn:aws:iam::ACCOUNT:oidc-provider/" + host},
		"Condition": map[string]any{"StringEquals": map[string]any{host + ":aud": st.OrgName, host + ":sub": trustSubject(st)}},
	}}}
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return ""
	}
	return string(out)
}
