package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/host/service"
	"workflowagent/internal/protocol"
)

// Examine runs the doctor on a configuration. An error concerns only the cleanup.
func Examine(ctx context.Context, o doctor.Options) (checkup.Report, error) {
	c := o.Config
	if c == nil {
		return doctor.Run(ctx, o), nil
	}
	o.Service = service.WithConfig(c.File())
	if o.AsService && o.Service != nil {
		o.ServiceErr = o.Service.Become(ctx)
	}
	client, err := newDoctorClient(c, o.UserAgent)
	if err == nil { // if err is not nil, a check reports it
		defer client.Close()
		o.Client = client
	}
	if !c.Token.IsZero() || c.UsesOIDC() {
		o.Token = func(ctx context.Context) (string, error) { return oneToken(ctx, c, client) }
	}
	o.Owner = instance.KnownID(c.StateDirectory)
	if o.Owner == "" {
		host, _ := os.Hostname() // distinguishes the doctors on hosts that share an engine
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
		if k, ok := place.(cluster); ok {
			o.Cluster, o.Pods = k, k.pods
			if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
				o.AgentNamespace = k.namespace
			}
		}
	}
	report := doctor.Run(ctx, o)
	if err := end(); err != nil {
		return report, fmt.Errorf("cleaning up after the doctor: %w", err)
	}
	return report, nil
}

// newDoctorClient returns a client that does not retry requests.
func newDoctorClient(c *config.Config, userAgent string) (*protocol.Client, error) {
	ca, err := c.CACertificates()
	if err != nil {
		return nil, fmt.Errorf("ca_certificate_file: %w", err)
	}
	return protocol.NewClient(protocol.Options{BaseURL: c.ServiceURL, UserAgent: userAgent, CACertPEM: ca, RequestTimeout: c.Agent.RequestTimeout})
}

// oneToken returns the configured pool token. If OIDC is configured, it exchanges the issuer's
// token for a pool token.
func oneToken(ctx context.Context, c *config.Config, client *protocol.Client) (string, error) {
	if !c.UsesOIDC() {
		return c.Token.Reveal(), nil
	}
	token, err := pooltoken.Exchange(ctx, pooltoken.Options{
		Client: client, File: c.OIDCTokenFile, Organization: c.OrganizationName, PoolID: c.RunnerPoolID, Life: c.TokenExpiration,
	})
	return token.Value, err
}

// trialPlace returns the executor for the trial job, and a function that cleans up. For the process
// target, the executor uses a temporary directory, so that the doctor creates nothing in the state
// directory.
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
