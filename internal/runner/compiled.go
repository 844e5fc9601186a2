package runner

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/runner/workspace"
)

const (
	// compiledVariable names the directory in which ts-node keeps the files that it has compiled. Pulumi runs programs in
	// TypeScript with ts-node.
	compiledVariable = "TS_NODE_CACHE_DIRECTORY"
	// dirCompiled is that directory, among the caches of a workspace.
	dirCompiled = "ts-node"
)

// reuseCompiled makes pulumi reuse what ts-node has compiled in an earlier job. ts-node finds a file by its own text and
// then does not check its types, although a file that it imports can have changed. So each commit, with its
// dependencies, has its own directory, and a job with pre-run commands, which can write files of the program, has none.
func (j *job) reuseCompiled(ctx context.Context, env []string) []string {
	k := j.keep
	given := func(entry string) bool { return strings.HasPrefix(entry, compiledVariable+"=") }
	installed := k.next.Installed
	if k.ws == nil || k.next.Checkout == nil || installed == nil || installed.Digest == "" || filepath.Base(installed.Dir) != "node_modules" ||
		len(j.definition.Deployment.PreRunCommands) > 0 || slices.ContainsFunc(env, given) {
		return env
	}
	name := workspace.Key(k.next.Checkout.Commit, installed.Digest)
	dir := filepath.Join(workspace.DirCaches, dirCompiled)
	err := k.ws.EmptyExcept(ctx, dir, func(entry string) bool { return entry == name && k.reusedDep })
	if err != nil {
		j.log.WithError(err).Warn("removing what ts-node compiled in earlier jobs")
		return env
	}
	return append(slices.Clip(env), compiledVariable+"="+filepath.Join(k.ws.Path(dir), name))
}
