package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

const (
	plantedSecret = "planted-4c1f-secret-9d02-value"
	plantedMarker = "visible-7a55-marker-1e88-value" // where it is found, the secret would have been
)

// planted searches for the secret of an environment, and counts where the marker is.
type planted struct {
	t      *testing.T
	forms  map[string]string // encodings of the secret
	marked map[string]int
}

func newPlanted(t *testing.T) *planted {
	p := &planted{t: t, forms: map[string]string{plantedSecret: "plain", hex.EncodeToString([]byte(plantedSecret)): "hexadecimal"}, marked: map[string]int{}}
	for offset := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), plantedSecret...))
		p.forms[text[offset+1:len(text)-2]] = "base64"
	}
	return p
}

// look searches a value, and what it contains if it is compressed.
func (p *planted) look(where string, value []byte) {
	p.t.Helper()
	for form, name := range p.forms {
		if bytes.Contains(value, []byte(form)) {
			p.t.Errorf("%s contains the secret (%s)", where, name)
		}
	}
	if bytes.Contains(value, []byte(plantedMarker)) {
		p.marked[where]++
	}
	var plain io.Reader
	var err error
	switch {
	case bytes.HasPrefix(value, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var z *zstd.Decoder
		if z, err = zstd.NewReader(bytes.NewReader(value)); err == nil {
			defer z.Close()
			plain = z
		}
	case bytes.HasPrefix(value, []byte{0x1f, 0x8b}):
		plain, err = gzip.NewReader(bytes.NewReader(value))
	default:
		return
	}
	if err == nil {
		value, err = io.ReadAll(plain)
	}
	if err != nil {
		p.t.Errorf("%s: %v", where, err)
	}
	p.look(where+", decompressed", value)
}

// lookInto searches all files of a directory.
func (p *planted) lookInto(where, dir string) {
	p.t.Helper()
	must.OK(p.t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			p.look(where, harness.Read(p.t, path))
		}
		return err
	}))
}

// lookIntoRows searches all rows of a database.
func (p *planted) lookIntoRows(dsn, blobs string) {
	p.t.Helper()
	db := must.Get(store.Open(p.t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: blobs}))(p.t)
	defer db.Close()
	must.OK(p.t, db.Read(p.t.Context(), func(tx *store.Tx) error {
		relations, err := tx.Relations()
		for _, r := range relations {
			p.lookIntoRelation(tx, r)
		}
		return err
	}))
}

func (p *planted) lookIntoRelation(tx *store.Tx, r database.Relation) {
	p.t.Helper()
	must.OK(p.t, tx.EachRow(r, func(values []any) error {
		for i, v := range values {
			value, isBytes := v.([]byte)
			if !isBytes {
				value = []byte(fmt.Sprint(v))
			}
			p.look(r.Name+"."+r.Columns[i].Name, value)
		}
		return nil
	}))
}

// TestClientsEnvironmentSecrets plants a secret in an environment, uses it in every way, also in wrong ones, and searches for it
// in the database, the files, the logs, the events, the audit log and a backup.
func TestClientsEnvironmentSecrets(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		environmentSecrets(t, "")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		if reason, ok := postgres.Available(); !ok {
			t.Skip(reason)
		}
		dsn, stop, err := postgres.Start(t.Context(), t.TempDir())
		must.OK(t, err)
		t.Cleanup(stop)
		environmentSecrets(t, dsn)
	})
}

func environmentSecrets(t *testing.T, dsn string) {
	t.Helper()
	ctx := t.Context()
	var args []string
	if dsn != "" {
		args = []string{"--database", dsn}
	}
	w := harness.StartSite(t, "", args...)
	dir := t.TempDir()
	write := func(name, text string) {
		harness.Write(t, filepath.Join(dir, name), []byte(strings.NewReplacer("SECRET", plantedSecret, "MARKER", plantedMarker).Replace(text)), 0o600)
	}
	write("base.yaml", "values:\n  marker: MARKER\n  password: {fn::secret: SECRET}\n  environmentVariables: {MARK: '${marker}', PASSWORD: '${password}'}\n"+
		"  pulumiConfig: {'box:marker': '${marker}', 'box:password': '${password}'}\n")
	write("Pulumi.yaml", "name: box\nruntime: yaml\nconfig:\n  marker: {type: string}\n  password: {type: string, secret: true}\n"+
		"resources:\n  file: {type: lab:File, properties: {path: ./file, content: '${marker}'}}\noutputs:\n  marker: ${marker}\n  password: ${password}\n  both: MARKER ${password}\n")
	write("Pulumi.dev.yaml", "environment: [app/base]\n")
	// Definitions whose errors could repeat a secret.
	write("stack.yaml", "imports: [app/base]\nvalues: {x: {fn::open::pulumi-stacks: {stacks: {a: {stack: '${password}'}}}}}\n")
	write("schema.yaml", "imports: [app/base]\nvalues: {x: {fn::validate: {schema: {const: '${password}'}, value: other}}}\n")
	write("alias.yaml", "values: {x: {fn::secret: *SECRET}}\n")
	sh := func(script string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, harness.Patience)
		defer cancel()
		cmd := child.Command(ctx, "sh", "-c", "set -e\n"+script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
		return string(out)
	}
	api := `curl -s -H "Authorization: token $PULUMI_ACCESS_TOKEN" $PULUMI_BACKEND_URL/api`
	sh(`pulumi env init organization/app/base --file base.yaml
pulumi env clone organization/app/base app/copy
pulumi env open organization/app/base
pulumi env get organization/app/base --show-secrets
EDITOR='sed -i s/app/app/' pulumi env edit organization/app/base --show-secrets
pulumi env diff organization/app/base@1 --show-secrets
pulumi stack init organization/box/dev
pulumi up --yes --skip-preview
pulumi preview
for f in stack schema; do ! pulumi env init organization/app/$f --file $f.yaml; done
! pulumi env init organization/app/alias --file alias.yaml
for f in stack schema alias; do ` + api + `/esc/environments/organization/yaml/open --data-binary @$f.yaml; done`)
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	repo := w.Repo(ctx, t)
	job := w.NewStack(ctx, t, "box", "job", "", nil)
	d := job.Finish(ctx, t, job.Deploy(ctx, t, "update", repo.URL,
		"pulumi env open organization/app/base password --format string > opened; echo "+plantedMarker+" is `cat opened`",
		"pulumi env run organization/app/base -i -- printenv PASSWORD MARK"))
	if d.Status != "succeeded" {
		t.Fatalf("the deployment ended as %+v:\n%s", d, job.Log(ctx, t, d))
	}

	p := newPlanted(t)
	p.look("the job's log", []byte(job.Log(ctx, t, d)))
	p.look("the audit log", []byte(sh(api+`/orgs/organization/auditlogs/export; `+api+`/orgs/organization/auditlogs`)))
	p.look("the events", []byte(sh(`for n in 1 2; do `+api+`/stacks/organization/box/dev/updates/$n/events?continuationToken=; done; `+api+`/stacks/organization/box/dev/updates`)))
	p.look("the state", []byte(sh(`pulumi stack export`)))
	backup := filepath.Join(t.TempDir(), "backup")
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "workflow-server"), "backup", backup, "--data-dir", w.Server.DataDir)
	if cmd.Env = os.Environ(); dsn != "" {
		cmd.Env = append(cmd.Env, "WORKFLOW_SERVER_DATABASE="+dsn)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.lookInto("the backup", backup)
	for _, a := range w.Agents {
		p.look("the agent's log", harness.Read(t, a.LogFile))
		_ = a.Process.Stop(syscall.SIGTERM, harness.Patience)
	}
	must.OK(t, w.Server.Process.Stop(syscall.SIGTERM, harness.Patience))
	p.look("the server's log", harness.Read(t, w.Server.LogFile))
	p.lookInto("the server's files", w.Server.DataDir)
	if dsn == "" {
		dsn = "sqlite:" + filepath.Join(w.Server.DataDir, "server.db")
	}
	p.lookIntoRows(dsn, filepath.Join(w.Server.DataDir, "blobs"))
	t.Logf("the marker was found in %v", p.marked)
	for _, where := range []string{"the job's log", "the events", "the state", "the backup, decompressed", "environment_revisions.definition"} {
		if p.marked[where] == 0 {
			t.Errorf("the marker was not found in %s, so that nothing was searched for there", where)
		}
	}
}
