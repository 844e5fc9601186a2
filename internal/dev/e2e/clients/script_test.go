package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
)

// TestScripts runs the scripts of testdata with the stock CLI against a real server and an agent
// with the process executor. It adds to testscript's commands:
//
//	agent [key=value …]           start an agent of the organization's default pool: sets POOL and AGENT_PID
//	agent -again                  start one more agent with the newest agent's directory: sets AGENT_PID
//	stopagent [KILL]              stop the newest agent with SIGTERM or SIGKILL
//	exited                        wait until the newest agent has exited with code 0
//	operator [-code N] ARG…       run the agent's program on agent 0's state directory, with no other settings
//	[!] operator -until REGEXP ARG…  repeat it until its output matches REGEXP, or no longer does
//	setid NAME                    set NAME to the id in the last JSON output
//	setout NAME                   set NAME to the last output
//	repo [-password WORD | -ssh] NAME DIR  publish DIR as a git repository: sets NAME_URL and NAME_COMMIT;
//	                              with -ssh, over SSH, with the file of its login key in NAME_KEY
//	settings STACK [FILE]         PUT deployment settings (default: only the job's environment)
//	api [-status N] METHOD PATH [FILE]  one API call; its body goes to stdout
//	job STACK N STATUS            wait until deployment N of the stack has that status
//	receiver SECRET               start a receiver of webhooks: sets RECEIVER
//	received KIND                 wait for its next request; its body goes to stdout
//	pack DIR FILE                 make DIR the tests' policy pack with the definition in FILE
//	wait-update STACK             wait until an update of the stack is in progress
//	wait-file FILE…               wait until the files exist
//
// The condition [newest] holds with the newest CLI.
func TestScripts(t *testing.T) {
	_, tools := harness.Programs(t)
	runScripts(t, tools, testscript.Params{Dir: "testdata"})
}

// TestClientsOnPostgres runs the scripts of a complete deployment, of environments and of the provider against servers
// with PostgreSQL. TestClientsPreviousCLI runs those of policies with it; their SQL does not depend on the CLI.
func TestClientsOnPostgres(t *testing.T) {
	_, tools := harness.Programs(t)
	onPostgres(t, tools, "deploy_update", "environments", "environments_settings", "provider")
	if harness.FullScale {
		onPostgres(t, tools, "policy", "policy_results", "policy_evaluation", "grants", "environments_commands", "managed_environments", "webhooks")
	}
}

// TestClientsPreviousCLI runs the scripts of policies with the CLI before the newest one, which makes other calls for
// updates and groups, and knows no exceptions. At full scale, it also runs those of environments and of grants, where it
// reads outputs with another call.
func TestClientsPreviousCLI(t *testing.T) {
	scripts := []string{"policy", "policy_results", "policy_evaluation"}
	if harness.FullScale {
		scripts = append(scripts, "grants", "environments", "environments_commands")
	}
	tools := must.Get(lab.PreviousPulumi(t.Context(), os.Stderr))(t)
	onPostgres(t, tools, scripts...)
	if harness.FullScale {
		for _, name := range scripts {
			runScripts(t, tools, testscript.Params{Files: []string{filepath.Join("testdata", name+".txtar")}})
		}
	}
}

// onPostgres runs scripts, each against its own server with its own database.
func onPostgres(t *testing.T, tools lab.Tools, scripts ...string) {
	t.Helper()
	if reason, ok := postgres.Available(); !ok {
		t.Skip(reason)
	}
	dsn, stop, err := postgres.Start(t.Context(), t.TempDir())
	must.OK(t, err)
	t.Cleanup(stop)
	for _, name := range scripts {
		runScripts(t, tools, testscript.Params{Files: []string{filepath.Join("testdata", name+".txtar")}}, "--database", newDatabase(t, dsn, name))
	}
}

func runScripts(t *testing.T, tools lab.Tools, p testscript.Params, serverArgs ...string) {
	t.Helper()
	bin, newestCLI := harness.Programs(t)
	examples := must.Get(filepath.Abs(filepath.Join("..", "..", "..", "..", "examples")))(t)
	testscript.Run(t, testscript.Params{
		Dir:                p.Dir,
		Files:              p.Files,
		RequireUniqueNames: true,
		Condition: func(name string) (bool, error) {
			if name != "newest" {
				return false, fmt.Errorf("%q is no condition", name)
			}
			return tools.Dir == newestCLI.Dir, nil
		},
		Setup: func(env *testscript.Env) error {
			w, err := harness.NewSite(context.Background(), bin, tools, filepath.Join(env.WorkDir, ".site"), "", append(serverArgs, "--forge-poll", "1s")...)
			if err != nil {
				return err
			}
			env.Defer(w.Close)
			env.Values[siteKey{}] = w
			env.Values[receivedKey{}] = make(chan [2]string, 100)
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool {
				return strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "HOME=")
			})
			env.Vars = append(env.Vars, tools.Env(w.Home, w.Server.URL, w.Server.Token)...)
			for i, v := range env.Vars {
				if path, ok := strings.CutPrefix(v, "PATH="); ok {
					env.Vars[i] = "PATH=" + bin + string(os.PathListSeparator) + path
				}
			}
			env.Vars = append(env.Vars, "ORG="+w.Server.Organization, "SERVER="+w.Server.URL, "TOKEN="+w.Server.Token, "DATA="+w.Server.DataDir, "EXAMPLES="+examples)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent": agent,
			"stopagent": func(ts *testscript.TestScript, neg bool, args []string) {
				signal := syscall.SIGTERM
				if len(args) > 0 && args[0] == "KILL" {
					signal = syscall.SIGKILL
				}
				ts.Check(newest(ts).Stop(signal, harness.Patience))
			},
			"exited": func(ts *testscript.TestScript, neg bool, args []string) {
				if err := newest(ts).Err(); err.Error() != "exit status 0" {
					ts.Fatalf("the agent exited with %v", err)
				}
			},
			"operator": operator,
			"setid":    setID,
			"setout": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
			},
			"repo":        repo,
			"settings":    settings,
			"api":         api,
			"job":         job,
			"pack":        pack,
			"receiver":    receiver,
			"received":    received,
			"wait-update": waitUpdate,
			"wait-file":   waitFile,
		},
	})
}

type siteKey struct{}

func of(ts *testscript.TestScript) *harness.Site { return ts.Value(siteKey{}).(*harness.Site) }

func newest(ts *testscript.TestScript) *child.Process {
	agents := of(ts).Agents
	return agents[len(agents)-1].Process
}

func agent(ts *testscript.TestScript, neg bool, args []string) {
	w := of(ts)
	if slices.Equal(args, []string{"-again"}) {
		again, err := lab.StartAgent(context.Background(), w.Last)
		ts.Check(err)
		w.Agents = append(w.Agents, again)
	} else {
		settings := map[string]string{}
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			settings[key] = value
		}
		_, err := w.StartAgent(context.Background(), "process", settings)
		ts.Check(err)
	}
	ts.Setenv("POOL", w.Pool.ID)
	ts.Setenv("AGENT_PID", strconv.Itoa(newest(ts).Pid()))
}

// operator writes standard output and standard error to the script's standard output.
func operator(ts *testscript.TestScript, neg bool, args []string) {
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	code := flags.Int("code", 0, "")
	until := flags.String("until", "", "")
	ts.Check(flags.Parse(args))
	pattern, err := regexp.Compile(*until)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	var out []byte
	got := 0
	err = harness.Until(ctx, func() (bool, error) {
		dir := filepath.Join(of(ts).Dir, "agent0")
		cmd := exec.CommandContext(ctx, filepath.Join(of(ts).Bin, "customer-managed-workflow-agent"), flags.Args()...)
		cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "PULUMI_AGENT_STATE_DIRECTORY=" + filepath.Join(dir, "state")}
		var err error
		out, err = cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return false, err
		}
		got = cmd.ProcessState.ExitCode()
		return *until == "" || pattern.Match(out) != neg, nil
	})
	_, _ = ts.Stdout().Write(out)
	if err != nil || *until == "" && got != *code {
		ts.Fatalf("%q exited with code %d, want %d (%v)", flags.Args(), got, *code, err)
	}
}

func setID(ts *testscript.TestScript, neg bool, args []string) {
	var object struct{ ID string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &object))
	ts.Setenv(args[0], object.ID)
}

func repo(ts *testscript.TestScript, neg bool, args []string) {
	flags := flag.NewFlagSet("repo", flag.ContinueOnError)
	password := flags.String("password", "", "")
	ssh := flags.Bool("ssh", false, "")
	ts.Check(flags.Parse(args))
	if flags.NArg() != 2 {
		ts.Fatalf("usage: repo [-password WORD | -ssh] NAME DIR")
	}
	name := flags.Arg(0)
	files, err := lab.ReadFiles(ts.MkAbs(flags.Arg(1)))
	ts.Check(err)
	git := of(ts).Git
	if *password != "" {
		git, err = lab.StartGitServer(context.Background(), filepath.Join(of(ts).Dir, "git-"+name), lab.GitOptions{Password: *password})
		ts.Check(err)
		ts.Defer(func() { _ = git.Close() })
	}
	r, commit, err := git.NewRepo(context.Background(), strings.ToLower(name), files)
	ts.Check(err)
	url := r.URL
	ts.Setenv(name+"_DIR", r.Dir())
	ts.Setenv(name+"_BASE", git.URL)
	if *ssh {
		dir := filepath.Join(of(ts).Dir, "ssh-"+name)
		ts.Check(os.MkdirAll(dir, 0o700))
		server, err := lab.StartSSHServer(context.Background(), dir, "")
		ts.Check(err)
		ts.Defer(server.Close)
		url = server.RepoURL(r)
		key := filepath.Join(dir, "login")
		ts.Check(os.WriteFile(key, []byte(server.PrivateKey), 0o600))
		ts.Setenv(name+"_KEY", key)
	}
	ts.Setenv(name+"_URL", url)
	ts.Setenv(name+"_COMMIT", commit)
}

func settings(ts *testscript.TestScript, neg bool, args []string) {
	w := of(ts)
	body := map[string]any{}
	if len(args) > 1 {
		text := os.Expand(ts.ReadFile(args[1]), ts.Getenv)
		ts.Check(json.Unmarshal([]byte(text), &body))
	}
	operation, _ := body["operationContext"].(map[string]any)
	if operation == nil {
		operation = map[string]any{}
		body["operationContext"] = operation
	}
	variables, _ := operation["environmentVariables"].(map[string]any)
	if variables == nil {
		variables = map[string]any{}
		operation["environmentVariables"] = variables
	}
	for name, value := range w.JobEnv() {
		variables[name] = value
	}
	ts.Check(w.Server.Call(context.Background(), http.MethodPut, "/api/stacks/"+args[0]+"/deployments/settings", body, nil))
}

// api calls the API. With -until, it repeats the call until the response matches a pattern.
func api(ts *testscript.TestScript, neg bool, args []string) {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	want, until := flags.String("status", "2xx", ""), flags.String("until", "", "")
	ts.Check(flags.Parse(args))
	args = flags.Args()
	if len(args) < 2 {
		ts.Fatalf("usage: api [-status N] [-until PATTERN] METHOD PATH [FILE]")
	}
	pattern, err := regexp.Compile(*until)
	ts.Check(err)
	body := ""
	if len(args) > 2 {
		body = os.Expand(ts.ReadFile(args[2]), ts.Getenv)
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	var data []byte
	err = harness.Until(ctx, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, args[0], ts.Getenv("SERVER")+args[1], strings.NewReader(body))
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "token "+ts.Getenv("TOKEN"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if data, err = io.ReadAll(resp.Body); err != nil {
			return false, err
		}
		if got := strconv.Itoa(resp.StatusCode); got != *want && (*want != "2xx" || resp.StatusCode/100 != 2) {
			return false, fmt.Errorf("the server answered %s, not %s", got, *want)
		}
		return pattern.Match(data), nil
	})
	_, _ = ts.Stdout().Write(bytes.TrimSpace(data))
	if err != nil {
		ts.Fatalf("%s %s: %v: %s", args[0], args[1], err, data)
	}
}

func job(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: job STACK N STATUS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var last string
	err := harness.Until(ctx, func() (bool, error) {
		var d struct {
			Status string `json:"status"`
		}
		if err := of(ts).Server.Call(ctx, http.MethodGet, "/api/stacks/"+args[0]+"/deployments/version/"+args[1], nil, &d); err != nil {
			last = err.Error()
			return false, nil //nolint:nilerr // the deployment can be created later
		}
		last = d.Status
		final := last == "succeeded" || last == "failed" || last == "skipped"
		if final && last != args[2] {
			return false, fmt.Errorf("deployment %s ended as %s", args[1], last)
		}
		return last == args[2], nil
	})
	if err != nil {
		var logs bytes.Buffer
		of(ts).Logs(&logs)
		ts.Fatalf("waiting for deployment %s of %s to be %s (it is %s): %v\n%s", args[1], args[0], args[2], last, err, logs.String())
	}
}

func pack(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: pack DIR FILE")
	}
	program, err := lab.PolicyPack(context.Background(), os.Stderr)
	ts.Check(err)
	ts.Check(lab.WritePolicyPack(ts.MkAbs(args[0]), program, ts.ReadFile(args[1])))
	ts.Check(lab.InstallLanguageHost(of(ts).Home, filepath.Join(of(ts).Bin, "workflow-runner")))
}

func waitUpdate(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	ts.Check(harness.Until(ctx, func() (bool, error) {
		var s struct {
			CurrentOperation *struct{} `json:"currentOperation"`
		}
		err := of(ts).Server.Call(ctx, http.MethodGet, "/api/stacks/"+args[0], nil, &s)
		return s.CurrentOperation != nil, err
	}))
}

func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for _, name := range args {
		ts.Check(harness.Until(ctx, func() (bool, error) {
			_, err := os.Stat(ts.MkAbs(name))
			return err == nil, nil
		}))
	}
}
