package forges

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// body is the body of a request that creates or changes an integration of any provider. The members
// after the empty line are not in the public API.
type body struct {
	Name                 *string `json:"name"`
	Type                 *string `json:"vcsType"`
	BaseURL              *string `json:"baseUrl"`
	Environment          *string `json:"environment"`
	Regenerate           bool    `json:"regenerateWebhookSecret"`
	GroupID              *int64  `json:"gitLabGroupId"`
	WorkspaceUUID        *string `json:"workspaceUuid"`
	WorkspaceSlug        *string `json:"workspaceSlug"`
	WorkspaceToken       *string `json:"workspaceAccessToken"`
	OrganizationName     *string `json:"organizationName"`
	ProjectID            *string `json:"projectId"`
	DisableComments      *bool   `json:"disablePRComments"`
	DisableDiff          *bool   `json:"disableDetailedDiff"`
	DisableDraftComments *bool   `json:"disableDraftPRComments"`
	DisableSummaries     *bool   `json:"disableNeoSummaries"`

	Flavor        *string                `json:"flavor"`
	APIURL        *string                `json:"apiUrl"`
	Owner         *string                `json:"owner"`
	AppID         *string                `json:"appId"`
	Installation  *string                `json:"installationId"`
	PrivateKey    *string                `json:"privateKey"`
	Secret        *string                `json:"webhookSecret"`
	Token         *string                `json:"accessToken"`
	Rotate        bool                   `json:"rotateWebhookSecret"`
	Credentials   *credentials           `json:"credentials"`
	Forks         *vcs.Approval          `json:"forkPullRequests"`
	Bots          *vcs.Approval          `json:"botPullRequests"`
	HonorSkipCI   *bool                  `json:"honorSkipCI"`
	Events        *string                `json:"events"`
	PreviewPool   *string                `json:"previewAgentPool"`
	TokenScope    *string                `json:"githubTokenScope"`
	Repositories  *[]integrations.Listed `json:"repositories"`
	CACertificate *string                `json:"caCertificate"`
	HostKeys      *[]string              `json:"hostKeys"`
}

// credentials are the credentials of a custom integration. Only one way is possible.
type credentials struct {
	Token      *secret `json:"personalAccessToken"`
	UserName   *secret `json:"username"`
	Password   *secret `json:"password"`
	SSHKey     *secret `json:"sshPrivateKey"`
	Passphrase *secret `json:"sshPassword"`
}

// secret is a secret in one of the forms of the settings of deployments: a text, or an object with
// the member secret.
type secret string

// UnmarshalJSON accepts both forms.
func (s *secret) UnmarshalJSON(data []byte) error {
	var object struct {
		Secret string `json:"secret"`
	}
	if json.Unmarshal(data, &object) == nil {
		*s = secret(object.Secret)
		return nil
	}
	return json.Unmarshal(data, (*string)(s))
}

// readChange returns the change that the body of a request describes, which can be missing.
func readChange(w http.ResponseWriter, r *http.Request, provider string) (integrations.Change, error) {
	var b body
	if err := request.DecodeOptional(w, r, &b); err != nil {
		return integrations.Change{}, err
	}
	c := integrations.Change{
		Name: b.Name, Flavor: b.Flavor, BaseURL: b.BaseURL, APIURL: b.APIURL, Owner: b.Owner, AppID: b.AppID, Installation: b.Installation,
		Token: b.Token, AppKey: b.PrivateKey, Secret: b.Secret, Rotate: b.Rotate || b.Regenerate, Revoke: b.Regenerate,
	}
	if b.Type != nil && b.Flavor == nil && slices.Contains([]string{vcs.FlavorGitea, vcs.FlavorForgejo, vcs.FlavorGit}, strings.ToLower(*b.Type)) {
		flavor := strings.ToLower(*b.Type)
		c.Flavor = &flavor
	}
	if c.Secret != nil && provider != vcs.ProviderGitHub {
		return c, fault.Invalid("webhookSecret is only for GitHub Apps; the server generates the other secrets")
	}
	switch provider {
	case vcs.ProviderGitLab:
		if b.GroupID != nil {
			id := strconv.FormatInt(*b.GroupID, 10)
			c.Project = &id
		}
	case vcs.ProviderBitbucket:
		c.Project = b.WorkspaceUUID
		if b.WorkspaceSlug != nil {
			c.Owner = b.WorkspaceSlug
		}
		if b.WorkspaceToken != nil {
			c.Token = b.WorkspaceToken
		}
	case vcs.ProviderAzure:
		if b.OrganizationName != nil {
			c.Owner = b.OrganizationName
		}
		c.Project = b.ProjectID
	}
	if cr := b.Credentials; cr != nil {
		text := func(v *secret) *string {
			if v == nil {
				return new(string)
			}
			return (*string)(v)
		}
		c.Token, c.UserName, c.SSHKey, c.Passphrase = text(cr.Token), text(cr.UserName), text(cr.SSHKey), text(cr.Passphrase)
		if cr.Password != nil {
			c.Token = text(cr.Password)
		}
	}
	c.Settings = b.settings
	return c, nil
}

func (b body) settings(set *integrations.Settings) error {
	copyTo(&set.DisableComments, b.DisableComments)
	copyTo(&set.DisableDiff, b.DisableDiff)
	copyTo(&set.DisableDraftComments, b.DisableDraftComments)
	copyTo(&set.DisableSummaries, b.DisableSummaries)
	copyTo(&set.ForkPulls, b.Forks)
	copyTo(&set.BotPulls, b.Bots)
	copyTo(&set.HonorSkipCI, b.HonorSkipCI)
	copyTo(&set.Events, b.Events)
	copyTo(&set.PreviewPool, b.PreviewPool)
	copyTo(&set.TokenScope, b.TokenScope)
	copyTo(&set.Repositories, b.Repositories)
	copyTo(&set.CACertificate, b.CACertificate)
	copyTo(&set.HostKeys, b.HostKeys)
	copyTo(&set.Environment, b.Environment)
	return nil
}

func copyTo[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// details returns the description of an integration, without secrets.
func (h *routes) details(i store.VCSIntegration) (map[string]any, error) {
	set, err := integrations.SettingsOf(i)
	if err != nil {
		return nil, err
	}
	valid := i.Problem == ""
	out := map[string]any{
		"id": i.ID, "name": i.Name, "baseUrl": i.BaseURL, "created": i.CreatedAt.Format(time.RFC3339), "modified": i.ModifiedAt.Format(time.RFC3339),
		"webhookUrl": h.integrations.HookURL(i), "valid": valid, "hasCredentials": len(i.Credential) > 0,
		"disablePRComments": set.DisableComments, "disableDetailedDiff": set.DisableDiff, "disableNeoSummaries": set.DisableSummaries,
		"disableDraftPRComments": set.DisableDraftComments, "repositories": append([]integrations.Listed{}, set.Repositories...),
		"honorSkipCI": set.HonorSkipCI,
	}
	for name, text := range map[string]string{
		"problem": i.Problem, "apiUrl": i.APIURL, "owner": i.Owner, "flavor": i.Flavor, "appId": i.AppID, "forkPullRequests": string(set.ForkPulls),
		"botPullRequests": string(set.BotPulls), "events": set.Events, "previewAgentPool": set.PreviewPool, "githubTokenScope": set.TokenScope,
	} {
		if text != "" {
			out[name] = text
		}
	}
	switch i.Provider {
	case vcs.ProviderCustom:
		out["vcsType"], out["environment"] = i.Flavor, set.Environment
		if i.Flavor == "" {
			out["vcsType"] = vcs.FlavorGit
		}
	case vcs.ProviderGitHub:
		out["accountName"], out["installationID"], out["isOrganization"], out["isSelfHosted"] = i.Owner, number(i.Installation), true, !integrations.IsHosted(i)
		out["hasContentsPermission"], out["hasMembersPermission"], out["disableCodeAccessForReviews"] = valid, false, true
	case vcs.ProviderGitLab:
		out["gitLabGroupId"], out["groupPath"], out["installed"] = number(i.Project), i.Owner, true
	case vcs.ProviderBitbucket:
		out["workspaceSlug"], out["workspaceUuid"], out["installed"] = i.Owner, i.Project, true
	case vcs.ProviderAzure:
		out["organization"], out["project"], out["installed"] = map[string]any{"name": i.Owner}, map[string]any{"id": i.Project, "name": i.Project}, true
	}
	return out, nil
}
