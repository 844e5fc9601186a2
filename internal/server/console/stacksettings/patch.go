package stacksettings

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/workflow"
)

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
	options := map[string]any{}
	for _, name := range []string{"skipInstallDependencies", "skipIntermediateDeployments", "deleteAfterDestroy", "remediateIfDriftDetected"} {
		options[name] = v.Form(name) == "on"
	}
	options["shell"] = orNull(v.Form("shell"))
	operation := map[string]any{"preRunCommands": v.Lines("commands"), "environmentVariables": env, "options": options, "oidc": oidcPatch(v)}
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
	if err := triggersPatch(v, set, doc); err != nil {
		return nil, err
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

func gitPatch(v *page.Visit, seal func(string) (any, error)) (any, error) {
	if strings.TrimSpace(v.Form("repository")) == "" && v.Form("forge") == "" {
		return nil, nil //nolint:nilnil // null removes the source
	}
	git := map[string]any{"repoUrl": orNull(v.Form("repository")), "repoDir": orNull(v.Form("folder"))}
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
	for _, old := range set.Variables() {
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
