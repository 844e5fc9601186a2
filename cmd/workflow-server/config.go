package main

import (
	"io"
	"os"
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/internal/server"
)

// configFlags adds the flags of all settings to a command and returns a function that loads the
// configuration from them. The help shows only the settings with the given keys, if any.
func configFlags(cmd *cobra.Command, shown ...string) func() (server.Config, error) {
	var file string
	cmd.Flags().StringVar(&file, "config", os.Getenv(server.EnvPrefix+"CONFIG"), "YAML file with settings; names as the flags, with _ for -")
	values := map[string]*string{}
	for _, f := range server.Fields() {
		values[f.Key] = cmd.Flags().String(f.Flag(), f.Default, f.Usage+" ["+f.Env()+"]")
		cmd.Flags().Lookup(f.Flag()).Hidden = len(shown) > 0 && !slices.Contains(shown, f.Key)
	}
	return func() (server.Config, error) {
		return server.LoadConfig(file,
			func(f server.Field) (string, bool) { return *values[f.Key], cmd.Flags().Changed(f.Flag()) },
			func(f server.Field) (string, bool) { v := os.Getenv(f.Env()); return v, v != "" },
		)
	}
}

func newLog(cfg server.Config, out io.Writer) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(out)
	l.SetLevel(cfg.LogLevel)
	if cfg.LogFormat == "json" {
		l.SetFormatter(&logrus.JSONFormatter{})
	} else {
		l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	}
	return logrus.NewEntry(l)
}
