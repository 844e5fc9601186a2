package esc

import (
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/store"
)

type tagBody struct {
	Name        string    `json:"name"`
	Value       string    `json:"value"`
	Created     time.Time `json:"created"`
	Modified    time.Time `json:"modified"`
	EditorLogin string    `json:"editorLogin"`
	EditorName  string    `json:"editorName"`
}

func tagOf(t store.EnvironmentTag) tagBody {
	return tagBody{t.Name, t.Value, t.CreatedAt.UTC(), t.ModifiedAt.UTC(), t.EditedBy, t.EditedBy}
}

// lastPage is the token after the last page of tags. With another one, also an empty one, clients ask for one more page.
const lastPage = "0"

// tags responds with all tags, because an environment has few.
func (e *routes) tags(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	list, err := e.environments.Tags(r.Context(), env)
	by := map[string]tagBody{}
	for _, t := range list {
		by[t.Name] = tagOf(t)
	}
	return web.Answer(w, r, map[string]any{"tags": by, "nextToken": lastPage}, err)
}

func (e *routes) tag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	t, err := e.environments.Tag(r.Context(), env, web.Param(r, "tag"))
	return web.Answer(w, r, tagOf(t), err)
}

func (e *routes) addTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	t, err := e.environments.AddTag(r.Context(), web.Principal(r), env, body.Name, body.Value)
	return web.Answer(w, r, tagOf(t), err)
}

func (e *routes) changeTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body struct {
		Current struct {
			Value string `json:"value"`
		} `json:"currentTag"`
		New struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"newTag"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	t, err := e.environments.ChangeTag(r.Context(), web.Principal(r), env, web.Param(r, "tag"), environments.TagChange{
		Current: body.Current.Value, NewName: body.New.Name, Value: body.New.Value,
	})
	return web.Answer(w, r, tagOf(t), err)
}

func (e *routes) removeTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	return web.Done(w, e.environments.RemoveTag(r.Context(), web.Principal(r), env, web.Param(r, "tag")))
}
