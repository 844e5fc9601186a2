package workspace

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/workflow"
)

// recordSuffix follows the scope in the name of a record.
const recordSuffix = ".json"

// maxRecord bounds the size of a record in bytes.
const maxRecord = 4096

// record is what the agent knows about a workspace and its content cannot say. The modification time of
// its file is the time of the last use.
type record struct {
	Stack string `json:"stack"`
}

// Touch records that a job of a stack uses a workspace. The records are next to the workspaces and not in
// them, because jobs can change these. Without a record, the workspace appears older than it is.
func (k *Keeper) Touch(scope, stack string) {
	if err := k.touch(scope, stack); err != nil {
		k.opts.Log.WithError(err).Debug("recording the use of a workspace failed")
	}
}

func (k *Keeper) touch(scope, stack string) error {
	if !workflow.IsScope(scope) {
		return nil
	}
	if err := os.MkdirAll(k.opts.Dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(k.opts.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	text, err := json.Marshal(record{Stack: stack})
	if err != nil {
		return err
	}
	file, _, err := boundedfile.OpenIn(root, scope+recordSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// readRecords completes workspaces with the records. A record takes precedence over the time of the
// workspace, which jobs can set.
func (k *Keeper) readRecords(all []executor.Workspace) {
	now := time.Now()
	for i := range all {
		if all[i].Used.After(now) {
			all[i].Used = now
		}
	}
	root, err := os.OpenRoot(k.opts.Dir)
	if err != nil {
		return // no job has had a workspace
	}
	defer root.Close()
	for i := range all {
		file, info, err := boundedfile.OpenIn(root, all[i].Scope+recordSuffix, os.O_RDONLY|unix.O_NOFOLLOW)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(file, maxRecord))
		_ = file.Close() // opened for reading only
		var r record
		if err == nil && json.Unmarshal(text, &r) == nil && r.Stack != "" {
			all[i].Stack = r.Stack
		}
		if !all[i].Used.IsZero() && !info.ModTime().After(now) {
			all[i].Used = info.ModTime()
		}
	}
}

// removeRecords removes the records that are too old to concern a workspace. Several agents can share a
// record, so that it outlives a workspace that one of them removes.
func (k *Keeper) removeRecords() {
	root, err := os.OpenRoot(k.opts.Dir)
	if err != nil {
		return
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // the remainder is read the next time
	for _, name := range names {
		scope, isRecord := strings.CutSuffix(name, recordSuffix)
		if !isRecord || !workflow.IsScope(scope) {
			continue
		}
		if info, err := root.Lstat(name); err == nil && time.Since(info.ModTime()) > k.opts.Limits.Age {
			_ = root.Remove(name)
		}
	}
}
