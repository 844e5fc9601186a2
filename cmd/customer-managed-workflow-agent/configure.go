package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/settings"
)

type configuring struct {
	options config.LoadOptions
	version string
	in      io.Reader
	out     io.Writer

	serviceURL, tokenFile, deployTarget string
	set                                 []string
	noCheck                             bool
}

func newConfigureCommand(version string, options func() config.LoadOptions) *cobra.Command {
	c := configuring{version: version}
	cmd := &cobra.Command{
		Use:   "configure",
		Short: "Write the configuration file, by questions on a terminal or by flags",
		Long: `Write the configuration file. Without flags, on a terminal, it asks for the settings an
agent needs and checks each answer; Enter keeps the value in brackets. With flags it
asks nothing.

Before it writes, it checks the result as run would, the server's answer to the token,
and the place where jobs run. It changes the file in place: comments, order and form
stay, and the file is replaced whole or not at all. The file is the one that run would
read; if none exists, /etc for root, else the home directory or, after install.sh, the
directory of the binary. --config names another.

The exit code is 0 if the file was written or needs no change, 1 if a check failed, and
2 for a wrong flag or value. After 1 and 2 the file is unchanged.`,
		Example: `  customer-managed-workflow-agent configure
  customer-managed-workflow-agent configure --service-url https://pulumi.example.com --token-file ./token
  printf %s "$TOKEN" | customer-managed-workflow-agent configure --token-file - --set max_concurrent_jobs=4`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			c := c
			c.options, c.in, c.out = options(), cmd.InOrStdin(), cmd.OutOrStdout()
			return c.run(ctx)
		},
	}
	cmd.Flags().StringVar(&c.serviceURL, "service-url", "", "set service_url")
	cmd.Flags().StringVar(&c.tokenFile, "token-file", "", "set token to the content of this file; - is the standard input")
	cmd.Flags().StringVar(&c.deployTarget, "deploy-target", "", "set deploy_target")
	cmd.Flags().StringArrayVar(&c.set, "set", nil, "set any key, as KEY=VALUE in the form of its variable; KEY= gives it its default (may be repeated)")
	cmd.Flags().BoolVar(&c.noCheck, "no-check", false, "write the file without checking the server and the host")
	return cmd
}

func (c *configuring) run(ctx context.Context) error {
	path, err := config.Target(c.options)
	if err != nil {
		return config.Invalid(err)
	}
	text, err := config.ReadText(path, c.options)
	if err != nil {
		return config.Invalid(err)
	}
	fmt.Fprintf(c.out, "Configuration file: %s\n", path)
	terminal, asking := c.terminal()
	var changes []settings.Change
	if asking {
		changes, err = c.ask(ctx, terminal, path, text)
	} else {
		changes, err = c.fromFlags()
	}
	if err != nil {
		return err
	}
	edited := text
	if text == nil {
		edited = []byte("# Written by customer-managed-workflow-agent configure. docs/configuration.md describes all keys.\n")
	}
	if edited, err = config.Table().Edit(path, edited, changes); err != nil {
		return config.Invalid(err)
	}
	loaded, err := config.LoadText(c.options, path, edited)
	if err == nil {
		err = loaded.Validate()
	}
	if err != nil {
		return config.Invalid(fmt.Errorf("nothing was written, because an agent cannot run with these settings:\n%s", c.nameFlags(err, path)))
	}
	if err := c.check(ctx, loaded, terminal); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return errStopped
	}
	return c.write(ctx, path, text, edited, changes, loaded)
}

// nameFlags makes an error about the file, which may be missing, name the flags of the values.
func (c *configuring) nameFlags(err error, path string) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		_, problem, inFile := strings.Cut(strings.TrimPrefix(line, path+":"), ": ")
		if !inFile || !strings.HasPrefix(line, path+":") {
			problem = line
		}
		for _, f := range c.flags() {
			switch {
			case !strings.HasPrefix(problem, f.key+": "):
			case f.value != "":
				lines[i] = f.name + ": " + strings.TrimPrefix(problem, f.key+": ")
			case problem == line: // not in the file either
				lines[i] += ", or use " + f.name
			}
		}
	}
	return strings.Join(lines, "\n")
}

type settingFlag struct{ name, key, value string }

func (c *configuring) flags() []settingFlag {
	return []settingFlag{
		{"--service-url", "service_url", c.serviceURL},
		{"--deploy-target", "deploy_target", c.deployTarget},
		{"--token-file", "token", c.tokenFile},
	}
}

var errStopped = errors.New("stopped; nothing was written")

// terminal returns the terminal for questions. Flags that say what to change disable questions.
func (c *configuring) terminal() (*terminal, bool) {
	in, isFile := c.in.(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return nil, false
	}
	t := &terminal{in: in, out: c.out}
	return t, c.serviceURL == "" && c.tokenFile == "" && c.deployTarget == "" && len(c.set) == 0
}

func (c *configuring) fromFlags() ([]settings.Change, error) {
	var changes []settings.Change
	add := func(flag, key, value string) error {
		change, err := config.Table().Check(settings.Change{Key: key, Value: value}, c.options.Dirs())
		if err != nil && flag != "--set" {
			return config.Invalid(fmt.Errorf("%s: %s", flag, strings.TrimPrefix(err.Error(), key+": ")))
		}
		if err != nil {
			return config.Invalid(fmt.Errorf("%s: %w", flag, err))
		}
		changes = append(changes, change)
		return nil
	}
	for _, setting := range c.set {
		key, value, found := strings.Cut(setting, "=")
		key = strings.TrimSpace(key)
		switch {
		case config.Table().IsSecret(key) && value != "":
			return nil, config.Invalid(fmt.Errorf("--set %s: other users can read the arguments of a program: put the value into a file and use --token-file", key))
		case !found:
			return nil, config.Invalid(errors.New("--set requires KEY=VALUE")) // it may be a token
		}
		if err := add("--set", key, value); err != nil {
			return nil, err
		}
	}
	for _, flag := range c.flags() {
		if flag.value == "" {
			continue
		}
		if flag.key == "token" {
			token, err := c.readToken()
			if err != nil {
				return nil, config.Invalid(err)
			}
			flag.value = token
		}
		if err := add(flag.name, flag.key, flag.value); err != nil {
			return nil, err
		}
	}
	if len(changes) == 0 {
		return nil, config.Invalid(errors.New("no setting is given: use --service-url, --token-file, --deploy-target or --set, or run configure on a terminal, where it asks"))
	}
	return changes, nil
}

// maxToken limits the size of a token, in bytes.
const maxToken = 64 << 10

func (c *configuring) readToken() (string, error) {
	from, name := c.in, "the standard input"
	if c.tokenFile != "-" {
		f, err := os.OpenFile(c.tokenFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		defer f.Close()
		from, name = f, c.tokenFile
	}
	data, err := io.ReadAll(io.LimitReader(from, maxToken+1))
	token := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: reading %s: %w", name, err)
	case len(data) > maxToken:
		return "", fmt.Errorf("--token-file: %s is larger than 64 KiB, the limit for a token", name)
	case token == "":
		return "", fmt.Errorf("--token-file: %s is empty", name)
	}
	return token, nil
}

// checks are the doctor's checks before the file is written; checksOf are those of one answer.
var (
	checks   = []string{"tls", "clock", "token", "engine", "runner"}
	checksOf = map[string][]string{
		"service_url": {"tls", "server"}, "token": {"token"}, "deploy_target": {"engine", "runner"},
	}
)

// check runs the checks. If one fails, the file is written only if the operator insists.
func (c *configuring) check(ctx context.Context, loaded *config.Config, asker *terminal) error {
	if c.noCheck {
		return nil
	}
	report, err := daemon.Examine(ctx, doctor.Options{
		Config: loaded, Version: c.version, UserAgent: daemon.UserAgent(c.version), Only: checks,
		Done: func(r doctor.Result) {
			if r.Status != doctor.Skip {
				doctor.Print(c.out, r, asker.coloured())
			}
		},
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errStopped
	case report.OK:
		return nil
	}
	if _, asking := c.terminal(); asking {
		answer, err := asker.line(ctx, "A check failed. Write the file nevertheless? [y/N]: ")
		if err != nil {
			return err
		}
		if answer := strings.ToLower(answer); answer == "y" || answer == "yes" {
			return nil
		}
	}
	return errors.New("nothing was written, because a check failed; correct it, or use --no-check")
}

func (c *configuring) write(ctx context.Context, path string, was, text []byte, changes []settings.Change, loaded *config.Config) error {
	if was != nil && bytes.Equal(was, text) {
		fmt.Fprintln(c.out, "Nothing to change: the file has these settings.")
		return nil
	}
	note, err := config.Write(path, text)
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	fmt.Fprintf(c.out, "Wrote %s.\n", path)
	if note != "" {
		fmt.Fprintf(c.out, "Note: %s.\n", note)
	}
	for _, change := range changes {
		if source := loaded.Source(change.Key); source.Kind == settings.FromEnv {
			fmt.Fprintf(c.out, "Note: the variable %s is set here and overrides %s in the file.\n", source.Name, change.Key)
		}
	}
	next := "To check everything else, run doctor. Then start the agent with run, or its service with service start."
	if _, err := control.FindRunning(ctx, loaded.StateDirectory, ""); err == nil {
		next = "Restart the running agent to use it. To check everything else, run doctor."
	}
	fmt.Fprintln(c.out, next)
	return nil
}
