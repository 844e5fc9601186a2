package integrations

import (
	"cmp"
	"net/url"
	"strings"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// completeAzure gives an integration with Azure DevOps the forms that its client uses: users copy the
// names of organizations and projects from addresses, which have escapes, and give the address of the
// organization, also the former one, as that of the forge.
func completeAzure(i *store.VCSIntegration) {
	for _, name := range []*string{&i.Owner, &i.Project} {
		if decoded, err := url.PathUnescape(*name); err == nil {
			*name = strings.Trim(decoded, "/")
		}
	}
	u, err := url.Parse(i.BaseURL)
	if err != nil || u.Scheme != "https" {
		return
	}
	var organization string
	host, path := strings.ToLower(u.Hostname()), strings.Trim(u.Path, "/")
	label, former := strings.CutSuffix(host, ".visualstudio.com")
	switch {
	case former && !strings.Contains(label, ".") && (path == "" || strings.EqualFold(path, "DefaultCollection")):
		organization = label
	case host == "dev.azure.com" && !strings.Contains(path, "/"):
		organization = path
	default:
		return
	}
	i.Owner = cmp.Or(i.Owner, organization)
	if organization == "" || strings.EqualFold(i.Owner, organization) {
		i.BaseURL = hosts[vcs.ProviderAzure]
	}
}
