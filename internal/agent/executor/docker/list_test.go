package docker

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
)

// TestListIgnoresCopiedLabels lists containers and volumes whose labels name a job, but which are not
// the job's objects. An image that "docker commit" makes of a job's container, for example, passes
// the labels on to all of its containers. The removal of the named objects would end a running job.
func TestListIgnoresCopiedLabels(t *testing.T) {
	const owner = "owner-one"
	of := func(owner, id string) map[string]string {
		spec := executor.Spec{Owner: owner, JobID: id, Epoch: 1}
		return labels(spec, job{Name: executor.ObjectName(owner, id, 1), JobDir: defaultJobDir}, kindJob, time.Now())
	}
	name := func(id string) string { return executor.ObjectName(owner, id, 1) }
	// The labels name another owner's job, although the label of the owner is changed.
	foreign := of("owner-two", "foreign")
	foreign[labelOwner] = owner
	// The labels of the job's id and of its name do not belong together.
	mixed := of(owner, "mixed")
	mixed[labelJob] = "other"
	type object struct {
		Names  []string
		Name   string
		Labels map[string]string
	}
	containers := []object{
		{Names: []string{"/" + name("own")}, Labels: of(owner, "own")},
		{Names: []string{"/" + name("copier") + "-copy"}, Labels: of(owner, "copier")},
		{Names: []string{"/of-a-person"}, Labels: of(owner, "committed")},
		{Names: []string{"/" + foreign[labelName]}, Labels: foreign},
		{Names: []string{"/" + name("mixed")}, Labels: mixed},
		{Names: nil, Labels: of(owner, "nameless")},
	}
	volumes := []object{
		{Name: name("volume"), Labels: of(owner, "volume")},
		{Name: "of-a-person", Labels: of(owner, "copied")},
		{Name: "workflow-runner-x", Labels: map[string]string{labelOwner: owner, labelKind: kindRunner}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.51")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_ = json.NewEncoder(w).Encode(containers)
		case strings.HasSuffix(r.URL.Path, "/volumes"):
			_ = json.NewEncoder(w).Encode(map[string]any{"Volumes": volumes})
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	ex, err := New(Options{Config: Config{Host: "tcp://" + server.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	found, err := ex.List(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, h := range found {
		ids = append(ids, h.JobID)
	}
	slices.Sort(ids)
	if want := []string{"copier", "own", "volume"}; !slices.Equal(ids, want) {
		t.Errorf("List returns the jobs %v, want %v", ids, want)
	}
}
