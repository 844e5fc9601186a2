package workspacedir_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/dev/must"
)

const (
	childVariable = "WORKSPACE_TEST_DIRECTORY"
	files         = 200
)

func TestMain(m *testing.M) {
	if base := os.Getenv(childVariable); base != "" {
		fmt.Fprintln(os.Stderr, useForever(base)) // ends with an error, or is killed
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// useForever makes, fills, measures and removes a workspace again and again, like an agent with a job. The
// job's record is its last file, like that of a runner.
func useForever(base string) error {
	d := workspacedir.New(base, noJobs)
	for {
		path, err := d.Make(context.Background(), scope("a"))
		for i := 0; i < files && err == nil; i++ {
			err = os.WriteFile(filepath.Join(path, strconv.Itoa(i)), nil, 0o600)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(path, "state.json"), nil, 0o600)
		}
		if err == nil {
			fmt.Fprintln(os.Stdout, "whole")
			_, err = d.Workspaces(context.Background(), "")
		}
		if err == nil {
			err = d.RemoveWorkspace(context.Background(), "", scope("a"))
		}
		if err != nil {
			return err
		}
	}
}

// TestKilled kills an agent while it makes, measures and removes a workspace. The next one finds all of it
// or nothing, and is not blocked.
func TestKilled(t *testing.T) {
	for round := range 12 {
		base := filepath.Join(t.TempDir(), "workspaces")
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+base)
		child.Stderr = t.Output()
		output := must.Get(child.StdoutPipe())(t)
		must.OK(t, child.Start())
		if !bufio.NewScanner(output).Scan() {
			t.Fatal("the agent ended by itself")
		}
		time.Sleep(time.Duration(round) * time.Millisecond) // each round ends at another point, and at any it must hold
		must.OK(t, child.Process.Kill())
		_ = child.Wait() // it was killed

		path := filepath.Join(base, scope("a"))
		if _, err := os.Stat(filepath.Join(path, "state.json")); err == nil {
			for i := range files {
				if _, err := os.Stat(filepath.Join(path, strconv.Itoa(i))); err != nil {
					t.Fatalf("in round %d, a part of the workspace remains: %v", round, err)
				}
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		d := workspacedir.New(base, noJobs)
		must.Get(d.Make(t.Context(), scope("a")))(t)
		must.OK(t, d.RemoveWorkspace(t.Context(), "", scope("a")))
		must.OK(t, d.CleanWorkspaces(t.Context()))
		for _, entry := range must.Get(os.ReadDir(base))(t) {
			if entry.IsDir() {
				t.Errorf("in round %d, %s remains", round, entry.Name())
			}
		}
	}
}
