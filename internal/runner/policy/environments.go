package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/redact"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

// maxOpened is the limit of the values of a pack's environments in bytes. With what describes values, they are larger than
// the server lets them be.
const maxOpened = 64 << 20

// opened is what the environments of a pack give it.
type opened struct {
	config map[string]any // the values policyConfig, by policy
	vars   map[string]string
	files  map[string]string // contents, by the variable that holds the path
	masks  *redact.Set       // nil if the pack has no environments
}

// openEnvironments opens the environments of the pack, as the CLI does before an update.
func (r *run) openEnvironments(ctx context.Context) error {
	if len(r.pack.Environments) == 0 {
		return nil
	}
	definition, err := json.Marshal(map[string][]string{"imports": r.pack.Environments}) // which is YAML, too
	if err != nil {
		return fmt.Errorf("encoding the names of the environments: %w", err)
	}
	var values any
	err = r.params.call(ctx, r.out, "opening the pack's environments", func(ctx context.Context, client *http.Client) error {
		open := "/api/esc/environments/" + url.PathEscape(r.params.Evaluation.Organization) + "/yaml/open"
		var session struct{ ID string }
		if err := r.params.exchange(ctx, client, http.MethodPost, open+"?duration=1h", definition, &session); err != nil {
			return err
		}
		return r.params.exchange(ctx, client, http.MethodGet, open+"/"+url.PathEscape(session.ID), nil, &values)
	})
	if err != nil {
		return err
	}
	members, _ := values.(map[string]any)
	properties, _ := members["properties"].(map[string]any)
	var secrets []redact.Secret
	member := func(name string) map[string]any {
		object, _ := plain(properties[name], name, false, &secrets).(map[string]any)
		return object
	}
	r.opened = opened{config: member("policyConfig"), vars: texts(member("environmentVariables")), files: texts(member("files"))}
	if r.opened.masks, err = redact.Build(ctx, secrets...); err != nil {
		return fmt.Errorf("masking the secrets of the pack's environments: %w", err)
	}
	fmt.Fprintf(r.out, "opened %s: %s, %s, %s\n", termtext.OneLine(strings.Join(r.pack.Environments, ", "), maxMessage),
		words.Count(len(r.opened.config), "configuration"), words.Count(len(r.opened.vars), "variable"), words.Count(len(r.opened.files), "file"))
	for _, name := range r.opened.masks.Skipped() {
		fmt.Fprintf(r.out, "warning: cannot mask a secret in %s, which is shorter than %d characters\n", termtext.OneLine(name, maxShown), redact.MinLength)
	}
	return nil
}

// exchange sends a request with JSON, and reads JSON.
func (p *Params) exchange(ctx context.Context, client *http.Client, method, path string, body []byte, answer any) error {
	req, err := p.request(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	var text bytes.Buffer
	if _, err := fetch(client, req, &text, maxOpened); err != nil {
		return err
	}
	dec := json.NewDecoder(&text)
	dec.UseNumber()
	if err := dec.Decode(answer); err != nil {
		return &finalError{errors.New("the answer of the server is no JSON")} // the error could repeat a value
	}
	return nil
}

// plain returns a value of an environment without what describes it, and adds the texts and numbers in it that are secret.
func plain(v any, name string, secret bool, secrets *[]redact.Secret) any {
	described, _ := v.(map[string]any)
	if flag, _ := described["secret"].(bool); flag {
		secret = true
	}
	switch content := described["value"].(type) {
	case map[string]any:
		object := map[string]any{}
		for key, member := range content {
			object[key] = plain(member, name, secret, secrets)
		}
		return object
	case []any:
		list := make([]any, len(content))
		for i, element := range content {
			list[i] = plain(element, name, secret, secrets)
		}
		return list
	case string, json.Number:
		if secret {
			*secrets = append(*secrets, redact.Secret{Name: name, Value: fmt.Sprint(content)})
		}
		return content
	default:
		return content
	}
}

// texts returns the members of an object that are neither lists nor objects.
func texts(object map[string]any) map[string]string {
	out := map[string]string{}
	for name, v := range object {
		switch v := v.(type) {
		case map[string]any, []any:
		case nil:
			out[name] = ""
		default:
			out[name] = fmt.Sprint(v)
		}
	}
	return out
}

// configuration returns the configuration of the pack: that of its group, and below it that of its environments, whose keys
// can begin with the pack's name. So an environment changes no level, because the group sets all.
func (r *run) configuration() ([]byte, error) {
	if len(r.opened.config) == 0 {
		if len(r.pack.Config) == 0 {
			return []byte("{}"), nil
		}
		return r.pack.Config, nil
	}
	group := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(r.pack.Config))
	dec.UseNumber()
	if err := dec.Decode(&group); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the pack's configuration: %w", err)
	}
	below := map[string]any{}
	for key, v := range r.opened.config {
		pack, policy, ok := strings.Cut(key, ":")
		if !ok {
			policy = key
		} else if pack != r.pack.Name {
			continue
		}
		below[policy] = v
	}
	return json.Marshal(over(group, below))
}

// over returns an object with the members of two, in which those of the first one win.
func over(first, second map[string]any) map[string]any {
	out := maps.Clone(second)
	for name, v := range first {
		a, object := v.(map[string]any)
		b, both := second[name].(map[string]any)
		if object && both {
			v = over(a, b)
		}
		out[name] = v
	}
	return out
}

// writeFiles writes the files of the environments, and returns the variables with their paths.
func (r *run) writeFiles() (map[string]string, error) {
	paths := map[string]string{}
	if len(r.opened.files) == 0 {
		return paths, nil
	}
	dir := r.path("files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("writing the files of the pack's environments: %w", err)
	}
	for i, name := range slices.Sorted(maps.Keys(r.opened.files)) {
		paths[name] = filepath.Join(dir, strconv.Itoa(i+1))
		if err := os.WriteFile(paths[name], []byte(r.opened.files[name]), 0o600); err != nil {
			return nil, fmt.Errorf("writing the files of the pack's environments: %w", err)
		}
	}
	return paths, nil
}
