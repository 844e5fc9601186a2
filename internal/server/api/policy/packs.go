package policy

import (
	"net/http"
	"strconv"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
)

type packBody struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName"`
	Versions    []int64  `json:"versions"`
	VersionTags []string `json:"versionTags"`
}

func (p *routes) listPacks(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, err := p.policies.Packs(r.Context(), o.ID, r.URL.Query().Get("policypack"))
	return web.Answer(w, r, map[string]any{"policyPacks": web.Each(list, func(pack policies.PackVersions) packBody {
		b := packBody{Name: pack.Name, DisplayName: pack.DisplayName, Versions: []int64{}, VersionTags: []string{}}
		for _, v := range pack.Versions {
			b.Versions = append(b.Versions, v.Number)
			b.VersionTags = append(b.VersionTags, policies.Label(v.Tag, v.Number))
		}
		return b
	})}, err)
}

type publishBody struct {
	Name        string            `json:"name"`
	DisplayName string            `json:"displayName"`
	VersionTag  string            `json:"versionTag"`
	Runtime     string            `json:"runtime"`
	Policies    []policies.Policy `json:"policies"`
	policies.Details
}

func (p *routes) publish(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var b publishBody
	if err := request.Decode(w, r, &b); err != nil {
		return err
	}
	made, err := p.policies.Publish(r.Context(), web.Principal(r), o, policies.Draft{
		Name: b.Name, DisplayName: b.DisplayName, Tag: b.VersionTag, Runtime: b.Runtime, Policies: b.Policies, Details: b.Details,
	})
	if err != nil {
		return err
	}
	if made.Warning != "" {
		warn(w, made.Warning)
	}
	return web.WriteJSON(w, r, http.StatusCreated, map[string]any{
		"version": made.Version.Number, "uploadURI": made.Upload, "requiredHeaders": map[string]string{"Content-Type": archiveType},
	})
}

// archiveType is the content type of archives.
const archiveType = "application/gzip"

func (p *routes) complete(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, p.policies.Confirm(r.Context(), o, web.Param(r, "pack"), web.Param(r, "version")))
}

// getVersion responds with a version, or the newest one if the path names none.
func (p *routes) getVersion(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	pack, v, applied, err := p.policies.Version(r.Context(), o, web.Param(r, "pack"), web.Param(r, "version"))
	if err != nil {
		return err
	}
	list, err := policies.PoliciesOf(v)
	return web.Answer(w, r, map[string]any{
		"name": pack.Name, "displayName": v.DisplayName, "version": v.Number, "versionTag": policies.Label(v.Tag, v.Number), "policies": list, "applied": applied,
	}, err)
}

func (p *routes) schema(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	_, v, _, err := p.policies.Version(r.Context(), o, web.Param(r, "pack"), web.Param(r, "version"))
	if err != nil {
		return err
	}
	list, err := policies.PoliciesOf(v)
	schemas := map[string]*policies.ConfigSchema{}
	for _, policy := range list {
		if policy.ConfigSchema != nil {
			schemas[policy.Name] = policy.ConfigSchema
		}
	}
	return web.Answer(w, r, map[string]any{"configSchema": schemas}, err)
}

// removePack removes a version, or the whole pack if the path names none.
func (p *routes) removePack(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Answer(w, r, struct{}{}, p.policies.Remove(r.Context(), o, web.Param(r, "pack"), web.Param(r, "version")))
}

func (p *routes) packsOfStack(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	mode := r.URL.Query().Get("mode")
	if mode != "" && mode != policies.Preventative && mode != policies.Audit {
		return fault.Invalid("Invalid query parameter: mode must be audit or preventative")
	}
	list, err := p.policies.Requirements(r.Context(), st, mode)
	return web.Answer(w, r, map[string]any{"requiredPolicies": list}, err)
}

// upload receives an archive. The address is the credential.
func (p *routes) upload(w http.ResponseWriter, r *http.Request) error {
	return web.Done(w, p.policies.Upload(r.Context(), web.Param(r, "id"), r.URL.Query(), r.Body, r.ContentLength))
}

// download sends an archive. The address is the credential.
func (p *routes) download(w http.ResponseWriter, r *http.Request) error {
	a, err := p.policies.Download(r.Context(), web.Param(r, "id"), r.URL.Query())
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", archiveType)
	h.Set("Content-Length", strconv.FormatInt(a.Size, 10))
	h.Set("Cache-Control", "no-store")
	if err := a.Copy(r.Context(), w); err != nil {
		web.Abort(r, err)
	}
	return nil
}
