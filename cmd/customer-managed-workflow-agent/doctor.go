package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/protocol"
)

func newDoctorCommand(version string, load loader) *cobra.Command {
	var asJSON bool
	o := doctor.Options{Version: version, UserAgent: userAgent(version)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that the agent and its jobs can work",
		Long: `Check that the agent and its jobs can work: the configuration, the network up to the
server, the token, the engine or the programs that jobs need, the runner, the disks, and
the network of a trial job. Run it as the agent's user and with the agent's PATH. It
claims no work, does not disturb a running agent, and leaves nothing behind.

The exit code is 0 if no check failed, 1 if one did, and 2 for a wrong command line.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o := o
			c, err := load()
			o.Config, o.ConfigErr = c, err
			out, colour := cmd.OutOrStdout(), false
			if f, ok := out.(*os.File); ok {
				colour = os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
			}
			if !asJSON {
				o.Done = func(r doctor.Result) { doctor.Print(out, r, colour) }
				o.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "...", line) }
			}
			report, err := examine(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(out, report); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(out, "\n%s\n", doctor.Summary(report))
			}
			switch {
			case ctx.Err() != nil:
				return errors.New("stopped before all checks had finished")
			case !report.OK:
				return errors.New("a check failed: see the lines that begin with fail")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&o.JobImage, "job-image", "", "image of the trial job (default: the image of jobs that name no image)")
	cmd.Flags().StringArrayVar(&o.Reach, "reach", nil, "a URL that jobs must reach, such as your git host's (may be repeated)")
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "skip the checks that use the network")
	return cmd
}

// examine runs the doctor on a configuration. Its error is about the clean-up.
func examine(ctx context.Context, o doctor.Options) (doctor.Report, error) {
	c := o.Config
	if c == nil {
		return doctor.Run(ctx, o), nil
	}
	client, err := newDoctorClient(c, o.UserAgent)
	if err == nil { // otherwise a check reports the error
		defer client.Close()
		o.Client = client
	}
	if !c.Token.IsZero() || c.UsesOIDC() {
		o.Token = func(ctx context.Context) (string, error) { return oneToken(ctx, c, client) }
	}
	o.Owner = instance.KnownID(c.StateDirectory)
	if o.Owner == "" {
		host, _ := os.Hostname() // distinguishes the doctors of hosts that share an engine
		o.Owner, o.Temporary = "doctor-"+executor.Digest(host+"\n"+c.StateDirectory), true
	}
	o.Environ = os.Environ()
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	place, end, err := trialPlace(c, logrus.NewEntry(quiet))
	if err != nil {
		o.ExecutorErr = err
	} else {
		o.Executor = place
		o.Engine, _ = place.(doctor.Engine)
	}
	report := doctor.Run(ctx, o)
	if err := end(); err != nil {
		return report, fmt.Errorf("cleaning up after the doctor: %w", err)
	}
	return report, nil
}

// newDoctorClient returns a client without retries.
func newDoctorClient(c *config.Config, userAgent string) (*protocol.Client, error) {
	ca, err := c.CACertificates()
	if err != nil {
		return nil, fmt.Errorf("ca_certificate_file: %w", err)
	}
	return protocol.NewClient(protocol.Options{BaseURL: c.ServiceURL, UserAgent: userAgent, CACertPEM: ca, RequestTimeout: c.RequestTimeout})
}

// oneToken returns the pool's token, exchanged for the issuer's if so configured.
func oneToken(ctx context.Context, c *config.Config, client *protocol.Client) (string, error) {
	if !c.UsesOIDC() {
		return c.Token.Reveal(), nil
	}
	token, err := pooltoken.Exchange(ctx, pooltoken.Options{
		Client: client, File: c.OIDCTokenFile, Organization: c.OrganizationName, PoolID: c.RunnerPoolID, Life: c.TokenExpiration,
	})
	return token.Value, err
}

// trialPlace returns the executor of the trial job, and its clean-up. A trial process gets its own
// directory, so that the doctor creates nothing in the state directory.
func trialPlace(c *config.Config, log *logrus.Entry) (_ executor.Executor, end func() error, err error) {
	trial, end := *c, func() error { return nil }
	if c.DeployTarget == config.TargetProcess {
		dir, err := os.MkdirTemp(c.TempDirectory(), "workflow-doctor-")
		if err != nil {
			return nil, end, fmt.Errorf("creating a directory for the trial job: %w", err)
		}
		trial.StateDirectory, trial.SharedVolumeDirectory = dir, ""
		end = func() error { return os.RemoveAll(dir) }
	}
	place, err := newExecutor(&trial, log)
	if err != nil {
		return nil, end, err
	}
	remove := end
	return place, func() error { return errors.Join(place.Close(), remove()) }, nil
}

func userAgent(version string) string {
	return fmt.Sprintf("customer-managed-workflow-agent/%s (%s; %s)", version, runtime.GOOS, runtime.GOARCH)
}
