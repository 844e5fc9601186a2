package main

import (
	"io"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/internal/server/config"
)

// configFlags adds the flags of all settings to a command and returns a function that loads the
// configuration from them. The help lists only the settings in shown, or all settings if shown is
// empty.
func configFlags(cmd *cobra.Command, shown ...string) func() (config.Config, error) {
	var file string
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings, named like the flags with _ for -")
	values := map[string]*string{}
	for _, f := range config.Table().Fields() {
		values[f.Key] = cmd.Flags().String(f.Flag(), f.Default, f.Doc+" ["+f.Env+"]")
		if _, isBool := f.Value.(*bool); isBool {
			cmd.Flags().Lookup(f.Flag()).NoOptDefVal = "true"
		}
		cmd.Flags().Lookup(f.Flag()).Hidden = len(shown) > 0 && !slices.Contains(shown, f.Key)
	}
	return func() (config.Config, error) {
		given := map[string]string{}
		for key, value := range values {
			if cmd.Flags().Changed(strings.ReplaceAll(key, "_", "-")) {
				given[key] = *value
			}
		}
		return config.Load(config.ProcessOptions(file, given))
	}
}

func newLog(cfg config.Config, out io.Writer) *logrus.Entry {
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
