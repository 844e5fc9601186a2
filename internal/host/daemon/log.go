package daemon

import (
	"fmt"
	"io"
	"log/syslog"
	"os"

	"github.com/sirupsen/logrus"
	logrussyslog "github.com/sirupsen/logrus/hooks/syslog"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/termtext"
)

func newLog(c *config.Config, debug bool) (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(os.Stderr)
	if debug {
		log.SetLevel(logrus.DebugLevel)
	}
	if c.LogFormat == config.LogJSON {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&textFormatter{logrus.TextFormatter{FullTimestamp: true}})
	}
	if !c.Syslog {
		return log, nil
	}
	return log, toSyslog(log, "", "")
}

// toSyslog sends a log only to the syslog daemon at the address, or to the local syslog daemon if
// the address is empty.
func toSyslog(log *logrus.Logger, network, address string) error {
	hook, err := logrussyslog.NewSyslogHook(network, address, syslog.LOG_DAEMON|syslog.LOG_INFO, "customer-managed-workflow-agent")
	if err != nil {
		return fmt.Errorf("syslog is true, but no syslog daemon can be reached: %w; start one, or set syslog to false", err)
	}
	log.AddHook(hook)
	log.SetOutput(io.Discard)
	return nil
}

// jobFormatter adds the other fields of a job to entries with a job_id, because most packages know
// only the job's ID.
type jobFormatter struct {
	logrus.Formatter
	fields func(jobID string) logrus.Fields
}

func (f jobFormatter) Format(e *logrus.Entry) ([]byte, error) {
	if id, ok := e.Data["job_id"].(string); ok {
		for name, value := range f.fields(id) {
			if _, known := e.Data[name]; !known {
				e.Data[name] = value // Data is this entry's own copy
			}
		}
	}
	return f.Formatter.Format(e)
}

// textFormatter removes control characters from messages. Messages quote servers, engines and
// registries, and logrus prints them verbatim on a terminal.
type textFormatter struct{ logrus.TextFormatter }

func (f *textFormatter) Format(e *logrus.Entry) ([]byte, error) {
	e.Message = string(termtext.Plain(nil, []byte(e.Message)))
	return f.TextFormatter.Format(e)
}

// newJobOutput returns the destination for copies of the jobs' output. If the log is plain text,
// the destination is standard output. Otherwise, newJobOutput returns nil, and each line becomes an
// entry in the log.
func newJobOutput(c *config.Config) *agent.JobOutput {
	if c.Syslog || c.LogFormat == config.LogJSON {
		return nil
	}
	return agent.NewJobOutput(os.Stdout)
}
