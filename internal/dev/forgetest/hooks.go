package forgetest

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/vcs"
)

// Delivery is what a forge documents to send, and what it means.
type Delivery struct {
	Event string // of the header, or ""
	Body  string
	Want  []vcs.Event
	// Ignored is the reason that there are no events.
	Ignored vcs.Reason
}

// Hooks checks the parsing of deliveries, by name. header returns the headers of an event. If they contain
// its kind, other kinds are ignored whatever their bodies are.
func Hooks(t *testing.T, hooks vcs.Hooks, header func(event string) map[string]string, deliveries map[string]Delivery) {
	t.Helper()
	for name, d := range deliveries {
		t.Run(name, func(t *testing.T) {
			t.Helper()
			parsed := must.Get(hooks.Parse(vcs.Delivery{Header: header(d.Event), Body: []byte(d.Body)}))(t)
			if diff := cmp.Diff(d.Want, parsed.Events); diff != "" || parsed.Ignored.Reason != d.Ignored || parsed.ID == "" {
				t.Errorf("id %q, ignored %+v\n%s", parsed.ID, parsed.Ignored, diff)
			}
		})
	}
	for name, d := range deliveries {
		for _, body := range []string{"", "null", "[]", "{", `"text"`, "<xml>"} {
			if _, err := hooks.Parse(vcs.Delivery{Header: header(d.Event), Body: []byte(body)}); err == nil && len(d.Want) > 0 {
				t.Errorf("%s: the body %q was accepted", name, body)
			}
			if d.Event != "" {
				if parsed, err := hooks.Parse(vcs.Delivery{Header: header("other"), Body: []byte(body)}); err != nil || parsed.Ignored.Reason == "" {
					t.Errorf("another kind of delivery with the body %q: %+v, %v", body, parsed, err)
				}
			}
		}
	}
}

// Signatures checks row 92: only deliveries that sign has made with the secret are authentic.
// tampered reports whether the forge's authentication covers the body.
func Signatures(t *testing.T, hooks vcs.Hooks, coversBody bool, sign func(body, secret string) vcs.Delivery) {
	t.Helper()
	const body = `{"a":1}`
	secret := func(texts ...string) (out [][]byte) {
		for _, s := range texts {
			out = append(out, []byte(s))
		}
		return out
	}
	changed := sign(body, "right-secret")
	changed.Body = []byte(`{"a":2}`)
	unsigned := vcs.Delivery{Body: []byte(body)}
	for name, tt := range map[string]struct {
		d       vcs.Delivery
		secrets [][]byte
		ok      bool
	}{
		"right":               {sign(body, "right-secret"), secret("right-secret"), true},
		"previous secret":     {sign(body, "right-secret"), secret("new-secret", "right-secret"), true},
		"other integration's": {sign(body, "right-secret"), secret("other-secret"), false},
		"no secret":           {sign(body, "right-secret"), nil, false},
		"empty secret":        {sign(body, ""), secret(""), false},
		"missing":             {unsigned, secret("right-secret"), false},
		"missing, no secret":  {unsigned, secret(""), false},
		"changed body":        {changed, secret("right-secret"), !coversBody},
	} {
		if err := hooks.Verify(tt.d, tt.secrets); (err == nil) != tt.ok || err != nil && !errors.Is(err, vcs.ErrUnverified) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, value := range sign(body, "right-secret").Header {
		for _, bad := range []string{"", value + "0", value[:len(value)-1], strings.ToUpper(value) + "x", "sha256=", "v1,"} {
			d := sign(body, "right-secret")
			d.Header = maps.Clone(d.Header)
			d.Header[name] = bad
			if hooks.Verify(d, secret("right-secret")) == nil {
				t.Errorf("%s: %q was accepted", name, bad)
			}
		}
	}
}

// Fuzz checks that any body is parsed without a panic, into valid events. The first byte selects the
// event.
func Fuzz(f *testing.F, hooks vcs.Hooks, header func(event string) map[string]string, events []string, seeds ...string) {
	for i := range events {
		for _, seed := range append(seeds,
			`{}`, `{"repository":null,"sender":null,"project":null,"resource":null,"push":null,"pull_request":null,"object_attributes":null}`,
			`{"repository":{"id":99999999999999999999},"number":1e400}`, `{"ref":"refs/heads/","before":"","after":"0"}`, // row 94
			`{"push":{"changes":[]},"resource":{"refUpdates":[]},"commits":[]}`, `{"push":{"changes":[null,{}]},"resource":{"refUpdates":[null,{}]},"commits":[null]}`,
		) {
			f.Add(byte(i), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, event byte, body []byte) {
		parsed, err := hooks.Parse(vcs.Delivery{Header: header(events[int(event)%len(events)]), Body: body})
		if err != nil {
			return
		}
		if parsed.ID == "" || (len(parsed.Events) == 0) == (parsed.Ignored.Reason == "") || len(parsed.Ignored.Detail) > 1000 {
			t.Errorf("%+v", parsed)
		}
		for _, e := range parsed.Events {
			isRef := e.Kind == vcs.KindPush || e.Kind == vcs.KindTag
			if isRef != strings.HasPrefix(e.Ref, "refs/") && e.Kind != vcs.KindMergeGroup || e.Deleted && e.After != "" || e.Kind == vcs.KindPull && e.Pull <= 0 || isRef && e.Repo.ID == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}
