package forges

import (
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// kind is a kind of git host, with the form that connects it.
type kind struct {
	name, title, provider, flavor string
	fields                        []field
	// hook says what to do with the webhook's address and secret.
	hook string
	// pulls reports whether the host has pull requests.
	pulls bool
}

// field is a field of a kind's form.
type field struct {
	name, label, hint string
	secret, required  bool
	rows              int
	// of returns the stored value; nil for secrets.
	of func(i store.VCSIntegration) string
	// set stores a value in a change.
	set func(c *integrations.Change, value string)
}

func baseField(hint string, required bool) field {
	return field{
		name: "base", label: "Address", hint: hint, required: required,
		of:  func(i store.VCSIntegration) string { return i.BaseURL },
		set: func(c *integrations.Change, value string) { c.BaseURL = &value },
	}
}

func ownerField(label, hint string) field {
	return field{
		name: "owner", label: label, hint: hint, required: true,
		of:  func(i store.VCSIntegration) string { return i.Owner },
		set: func(c *integrations.Change, value string) { c.Owner = &value },
	}
}

func projectField(label, hint string, required bool) field {
	return field{
		name: "project", label: label, hint: hint, required: required,
		of:  func(i store.VCSIntegration) string { return i.Project },
		set: func(c *integrations.Change, value string) { c.Project = &value },
	}
}

func tokenField(hint string) field {
	return field{
		name: "token", label: "Access token", hint: hint, secret: true, required: true,
		set: func(c *integrations.Change, value string) { c.Token = &value },
	}
}

const hooksOfRepositories = "If the credential may manage webhooks, the server creates one for each repository that a stack watches. Otherwise, create it at the git host: "

// kinds are the kinds of git hosts, with the least rights of their credentials as in docs/git.md.
var kinds = []kind{
	{
		name: "github", title: "GitHub", provider: vcs.ProviderGitHub, pulls: true,
		hook: hooksOfRepositories + "content type application/json; the events pushes and pull requests.",
		fields: []field{
			ownerField("Account", "The organization or user that owns the repositories."),
			tokenField("A fine-grained token that can read metadata and contents, and write pull requests and commit statuses."),
			baseField("Of a GitHub Enterprise Server. Empty for github.com.", false),
		},
	},
	{
		name: "github-app", title: "GitHub App", provider: vcs.ProviderGitHub, pulls: true,
		hook: "Enter the address as the App's webhook, with content type application/json, and the secret that you have entered here. Subscribe to push, pull request, check run, check suite, merge group and repository.",
		fields: []field{
			ownerField("Account", "The organization or user that has installed the App."),
			{
				name: "app", label: "App id", required: true,
				of:  func(i store.VCSIntegration) string { return i.AppID },
				set: func(c *integrations.Change, value string) { c.AppID = &value },
			},
			{
				name: "installation", label: "Installation id", hint: "Empty: the server finds it on the account.",
				of:  func(i store.VCSIntegration) string { return i.Installation },
				set: func(c *integrations.Change, value string) { c.Installation = &value },
			},
			{
				name: "key", label: "Private key", secret: true, required: true, rows: 5, hint: "The content of the App's .pem file. The App needs read access to metadata, contents and merge queues, and write access to pull requests, checks and commit statuses.",
				set: func(c *integrations.Change, value string) { c.AppKey = &value },
			},
			{
				name: "hook-secret", label: "Webhook secret", secret: true, required: true, hint: "At least 32 characters. Enter the same secret in the settings of the App.",
				set: func(c *integrations.Change, value string) { c.Secret = &value },
			},
			baseField("Of a GitHub Enterprise Server. Empty for github.com.", false),
		},
	},
	{
		name: "gitlab", title: "GitLab", provider: vcs.ProviderGitLab, pulls: true,
		hook: hooksOfRepositories + "a webhook of the group or the project with this secret token; push, tag push and merge request events.",
		fields: []field{
			ownerField("Group", "The path of the group, such as acme/infra."),
			projectField("Group id", "The number that the page of the group shows.", true),
			tokenField("A group access token with the role Developer and the scope api."),
			baseField("Empty for gitlab.com.", false),
		},
	},
	{
		name: "gitea", title: "Gitea or Forgejo", provider: vcs.ProviderCustom, flavor: vcs.FlavorGitea, pulls: true,
		hook: hooksOfRepositories + "type Gitea, content type application/json; push and pull request events.",
		fields: []field{
			baseField("Such as https://git.example.com.", true),
			tokenField("A token with the rights write:repository and write:issue."),
		},
	},
	{
		name: "bitbucket", title: "Bitbucket Cloud", provider: vcs.ProviderBitbucket, pulls: true,
		hook: hooksOfRepositories + "push and pull request events, with this secret.",
		fields: []field{
			ownerField("Workspace", "The workspace's name in addresses."),
			projectField("Workspace UUID", "", false),
			tokenField("A workspace access token with the scopes repository and pullrequest:write."),
		},
	},
	{
		name: "azure-devops", title: "Azure DevOps", provider: vcs.ProviderAzure, pulls: true,
		hook: "Create service hooks for code pushed, pull request created and pull request updated, with basic authentication: any user name, and the secret as password.",
		fields: []field{
			ownerField("Organization", "As in https://dev.azure.com/ORGANIZATION."),
			projectField("Project", "The name or the id of the project.", true),
			tokenField("A token that can read code, and write statuses and pull request threads."),
		},
	},
	{
		name: "git", title: "Other git server", provider: vcs.ProviderCustom, flavor: vcs.FlavorGit,
		hook: "To deploy at once, install the hook from examples/git/post-receive with this address, this secret and the integration's id.",
		fields: []field{
			baseField("Such as https://git.example.com/team or git@git.example.com:team. Names of repositories are relative to it.", true),
			{
				name: "user", label: "User name",
				set: func(c *integrations.Change, value string) { c.UserName = &value },
			},
			{
				name: "token", label: "Password or token", secret: true, hint: "It only needs to read. If the git server requires no credential, leave it empty and select \"only polls\" below.",
				set: func(c *integrations.Change, value string) {
					c.Token, c.SSHKey, c.Passphrase = &value, new(string), new(string)
				},
			},
			{
				name: "ssh-key", label: "Or SSH private key", secret: true, rows: 5,
				set: func(c *integrations.Change, value string) {
					c.SSHKey, c.Token, c.UserName = &value, new(string), new(string)
				},
			},
			{
				name: "passphrase", label: "Passphrase of the key", secret: true,
				set: func(c *integrations.Change, value string) { c.Passphrase = &value },
			},
		},
	},
}

func kindNamed(name string) (kind, bool) {
	for _, k := range kinds {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

// kindOf returns the kind of an integration.
func kindOf(i store.VCSIntegration) kind {
	key := vcs.ForgeKey(i.Provider, i.Flavor)
	for _, k := range kinds {
		if vcs.ForgeKey(k.provider, k.flavor) == key && (k.name == "github-app") == (i.AppID != "") {
			return k
		}
	}
	return kind{title: i.Provider, provider: i.Provider}
}

// form contains the values of a form.
type form struct {
	Name     string
	Values   map[string]string // by field
	Settings integrations.Settings
}

// formOf returns the posted form. Secrets are not shown again if the form has an error.
func formOf(v *page.Visit, k kind) form {
	f := form{Name: strings.TrimSpace(v.Form("name")), Values: map[string]string{}}
	for _, d := range k.fields {
		f.Values[d.name] = strings.TrimSpace(v.Form(d.name))
	}
	on := func(name string) bool { return v.Form(name) == "on" }
	f.Settings = integrations.Settings{
		ForkPulls: vcs.Approval(v.Form("forks")), BotPulls: vcs.Approval(v.Form("bots")), Events: v.Form("events"), PreviewPool: v.Form("pool"),
		DisableComments: on("no-comments"), DisableDraftComments: on("no-draft-comments"), DisableDiff: on("no-diff"), HonorSkipCI: on("skip-ci"),
		CACertificate: strings.TrimSpace(v.Form("ca")), HostKeys: v.Lines("host-keys"),
	}
	for _, name := range v.Lines("repositories") {
		f.Settings.Repositories = append(f.Settings.Repositories, integrations.Listed{Name: name})
	}
	return f
}

// stored returns the form of an integration, without its secrets.
func stored(i store.VCSIntegration, k kind) (f form, err error) {
	f = form{Name: i.Name, Values: map[string]string{}}
	for _, d := range k.fields {
		if d.of != nil {
			f.Values[d.name] = d.of(i)
		}
	}
	f.Settings, err = integrations.SettingsOf(i)
	return f, err
}

// change returns the change that the form requests. An empty secret keeps the stored one.
func (f form) change(k kind, isNew bool) (integrations.Change, error) {
	c := integrations.Change{Name: &f.Name, Settings: f.settings(k)}
	if k.flavor != "" && isNew {
		c.Flavor = &k.flavor
	}
	for _, d := range k.fields {
		value := f.Values[d.name]
		kept := d.of == nil && !isNew // unknown to the form
		switch {
		case value != "" && d.name == "project" && k.provider == vcs.ProviderGitLab:
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				return c, fault.Invalid("%s is not a number.", d.label)
			}
		case value == "" && d.required && !kept:
			return c, fault.Invalid("%s is missing.", d.label)
		case value == "" && d.of == nil:
			continue
		}
		d.set(&c, value)
	}
	return c, nil
}

// settings returns a function that stores the settings of the form, and keeps the others.
func (f form) settings(k kind) func(*integrations.Settings) error {
	return func(s *integrations.Settings) error {
		named := map[string]string{}
		for _, r := range s.Repositories {
			named[r.Name] = r.DisplayName
		}
		s.Events, s.CACertificate, s.HostKeys, s.Repositories = f.Settings.Events, f.Settings.CACertificate, f.Settings.HostKeys, nil
		for _, r := range f.Settings.Repositories {
			s.Repositories = append(s.Repositories, integrations.Listed{Name: r.Name, DisplayName: named[r.Name]})
		}
		if k.pulls {
			s.ForkPulls, s.BotPulls, s.PreviewPool, s.HonorSkipCI = f.Settings.ForkPulls, f.Settings.BotPulls, f.Settings.PreviewPool, f.Settings.HonorSkipCI
			s.DisableComments, s.DisableDraftComments, s.DisableDiff = f.Settings.DisableComments, f.Settings.DisableDraftComments, f.Settings.DisableDiff
		}
		return nil
	}
}

// wrong puts a problem of the form next to the field that it is about.
func (k kind) wrong(problem string) page.Wrong {
	var about []page.About
	for _, f := range k.fields {
		about = append(about, page.About{Word: f.label + " is ", Field: f.name})
	}
	credential := "token"
	for _, f := range k.fields {
		if f.secret {
			credential = f.name
			break
		}
	}
	return page.Locate(problem, append(about,
		page.About{Word: "BaseUrl", Field: "base", Label: "The address"}, page.About{Word: "enter the credential again", Field: credential}, page.About{Word: "token or an SSH key", Field: credential},
		page.About{Word: "WebhookSecret", Field: "hook-secret", Label: "The secret"}, page.About{Word: "PreviewAgentPool:", Field: "pool", Label: "Pool:"},
		page.About{Word: "with the name", Field: "name"}, page.About{Word: "Name ", Field: "name"}, page.About{Word: "ertificate", Field: "ca"}, page.About{Word: "ost key", Field: "host-keys"},
		page.About{Word: "epositor", Field: "repositories"})...)
}

// repositoryLines returns the allowed repositories as lines of the form.
func (f form) repositoryLines() string {
	var names []string
	for _, r := range f.Settings.Repositories {
		names = append(names, r.Name)
	}
	return strings.Join(names, "\n")
}
