package stacksettings

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/workflow"
)

// orNull returns a value of a patch: null removes the member.
func orNull(text string) any {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return text
}

// deployPatch returns the form of the deployment settings as a patch of the stored ones.
func (p *pages) deployPatch(v *page.Visit, d *draft) ([]byte, error) {
	set := d.base()
	seal := func(text string) (any, error) {
		return p.Deployments.Encrypt(v.Context(), v.Stack, workflow.SecretValue(text))
	}
	git, err := gitPatch(v, d, seal)
	if err != nil {
		return nil, err
	}
	if err := pendingVariables(v, d, seal); err != nil {
		return nil, err
	}
	used, err := p.environmentsPatch(v, d)
	if err != nil {
		return nil, err
	}
	options := map[string]any{}
	for _, name := range []string{"skipInstallDependencies", "skipIntermediateDeployments", "deleteAfterDestroy", "remediateIfDriftDetected"} {
		options[name] = v.Form(name) == "on"
	}
	options["shell"] = orNull(v.Form("shell"))
	operation := map[string]any{"preRunCommands": v.Lines("commands"), "environmentVariables": d.Pending.Variables, "environments": used, "options": options, "oidc": oidcPatch(v)}
	doc := map[string]any{
		"agentPoolID": v.Form("pool"), "sourceContext": map[string]any{"git": git},
		"concurrencyGroup": orNull(v.Form("group")),
		"operationContext": operation,
	}
	if git == nil {
		doc["sourceContext"] = nil
	}
	if enable := v.Form("cache") == "on"; enable != set.Caches() {
		doc["cacheOptions"] = map[string]any{"enable": enable}
	}
	if image := strings.TrimSpace(v.Form("image")); image != set.Image() {
		doc["executorContext"] = map[string]any{"executorImage": orNull(image)}
	}
	if commands, changed := postRunPatch(v, set); changed {
		operation["postRunCommands"] = commands
	}
	out, err := json.Marshal(doc)
	return out, fault.While(err, "encoding the settings of a form")
}

// The modes of credentials for a repository, and what each requires.
var authModes = map[string]string{"token": "Enter the new access token.", "ssh": "Enter the new SSH key.", "basic": "Enter the user name and the password."}

func gitPatch(v *page.Visit, d *draft, seal func(string) (any, error)) (any, error) {
	if strings.TrimSpace(v.Form("repository")+v.Form("branch")+v.Form("commit")+v.Form("folder")) == "" && watchedName(d.base()) == "" {
		return nil, nil //nolint:nilnil // null removes the source
	}
	git := map[string]any{"repoUrl": orNull(v.Form("repository")), "repoDir": orNull(v.Form("folder"))}
	if commit := strings.TrimSpace(v.Form("commit")); commit != "" {
		git["commit"] = commit
	} else {
		git["branch"] = orNull(branchOf(v.Form("branch"), gitOf(d.base()).Branch))
	}
	mode, secret := v.Form("auth"), v.Form("git-secret")
	if mode == "none" {
		d.Pending.Auth, git["gitAuth"] = nil, nil
		return git, nil
	}
	missing, ok := authModes[mode]
	switch {
	case ok && (secret == "" || mode == "basic" && v.Form("git-user") == ""):
		d.wrong(authMember, missing)
	case ok:
		sealed, err := seal(secret)
		if err != nil {
			return nil, err
		}
		d.Pending.Auth = map[string]any{
			"token": map[string]any{"accessToken": sealed},
			"ssh":   map[string]any{"sshAuth": map[string]any{"sshPrivateKey": sealed}},
			"basic": map[string]any{"basicAuth": map[string]any{"userName": v.Form("git-user"), "password": sealed}},
		}[mode].(map[string]any)
	}
	if d.Pending.Auth != nil {
		git["gitAuth"] = d.Pending.Auth
	}
	return git, nil
}

// headRefs is the prefix of refs that are branches. Pages show branches without it.
const headRefs = "refs/heads/"

// branchOf returns the branch of a form. A stored branch stays as it is written if the form shows the same one.
func branchOf(form, stored string) string {
	if form = strings.TrimSpace(form); headRefs+form == stored {
		return stored
	}
	return form
}

// pendingVariables adds to a draft the variables that its form adds or removes.
func pendingVariables(v *page.Visit, d *draft, seal func(string) (any, error)) error {
	env := d.Pending.Variables
	if env == nil {
		env = map[string]any{}
	}
	if name := v.Form("remove"); name != "" {
		delete(env, name)
		if slices.ContainsFunc(d.base().Variables(), func(old workflow.Variable) bool { return old.Name == name }) {
			env[name] = nil
		}
	}
	name, value := strings.TrimSpace(v.Form("name")), v.Form("value")
	switch {
	case name == "" && value != "":
		d.wrong(variablesMember, "Name the variable with the new value.")
	case name != "" && v.Form("secret") == "on":
		sealed, err := seal(value)
		if err != nil {
			return err
		}
		env[name] = sealed
	case name != "":
		env[name] = value
	}
	d.Pending.Variables = env
	return nil
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
