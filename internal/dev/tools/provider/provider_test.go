package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

func TestSchemaHasOurResources(t *testing.T) {
	t.Parallel()
	provider, err := newProvider()
	if err != nil {
		t.Fatal(err)
	}
	server, err := integration.NewServer(t.Context(), providerName, semver.MustParse(version), integration.WithProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.GetSchema(p.GetSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Resources map[string]any `json:"resources"`
	}
	if err := json.Unmarshal([]byte(resp.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	var got []string
	for token := range schema.Resources {
		got = append(got, token)
	}
	slices.Sort(got)
	if want := []string{"lab:index:File", "lab:index:Random", "lab:index:Record", "lab:index:Sleep"}; !slices.Equal(got, want) {
		t.Errorf("the resources are %q, want %q", got, want)
	}
}

func TestFileFollowsItsLife(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "file")
	args := FileArgs{Path: path, Content: "one"}
	if _, err := (File{}).Create(t.Context(), infer.CreateRequest[FileArgs]{Inputs: args, DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a preview wrote the file")
	}
	created, err := File{}.Create(t.Context(), infer.CreateRequest[FileArgs]{Inputs: args})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("drifted"), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := File{}.Read(t.Context(), infer.ReadRequest[FileArgs, FileState]{ID: created.ID, Inputs: args, State: created.Output})
	if err != nil || read.State.Content != "drifted" || read.ID != created.ID {
		t.Errorf("reading found %+v, %v, want the new content", read, err)
	}
	for range 2 { // A second deletion has no effect.
		if _, err := (File{}).Delete(t.Context(), infer.DeleteRequest[FileState]{State: created.Output}); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := File{}.Read(t.Context(), infer.ReadRequest[FileArgs, FileState]{ID: created.ID, Inputs: args})
	if err != nil || gone.ID != "" {
		t.Errorf("reading a missing file found %+v, %v, want nothing", gone, err)
	}
}

func TestRandomChecksItsSize(t *testing.T) {
	t.Parallel()
	for size, want := range map[float64]int{0: 1, 1: 0, maxRandomBytes: 0, maxRandomBytes + 1: 1} {
		inputs := property.NewMap(map[string]property.Value{"bytes": property.New(size)})
		resp, err := Random{}.Check(t.Context(), infer.CheckRequest{NewInputs: inputs})
		if err != nil || len(resp.Failures) != want {
			t.Errorf("%v bytes: failures %v, %v, want %d", size, resp.Failures, err, want)
		}
	}
}

func TestSleepEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	yes := true
	for _, test := range []struct {
		name string
		ctx  context.Context
		args SleepArgs
		want error
	}{
		{"after its time", t.Context(), SleepArgs{Seconds: 0.01}, nil},
		{"when the file appears", t.Context(), SleepArgs{Seconds: 3600, Started: &file, Until: &file}, nil},
		{"when cancelled", cancelled, SleepArgs{Seconds: 3600}, context.Canceled},
		{"not if it ignores that", cancelled, SleepArgs{Seconds: 0.05, IgnoreCancel: &yes}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			_, err := Sleep{}.Create(test.ctx, infer.CreateRequest[SleepArgs]{Inputs: test.args})
			if !errors.Is(err, test.want) {
				t.Errorf("it ended with %v, want %v", err, test.want)
			}
			if test.args.IgnoreCancel != nil && time.Since(begin) < 50*time.Millisecond {
				t.Error("it ended early")
			}
		})
	}
}
