package configure

import (
	"errors"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/setup"
)

// flags returns the flags that set settings. The token's value is the file that contains the token.
func (o Options) flags() setup.Flags {
	return setup.Flags{
		Table: config.Table(), Dirs: o.Load.Dirs(), Set: o.Set, Secret: "use --token-file",
		List: []setup.Flag{
			{Name: "--service-url", Key: "service_url", Value: o.ServiceURL},
			{Name: "--deploy-target", Key: "deploy_target", Value: o.DeployTarget},
			{Name: "--token-file", Key: "token", Value: o.TokenFile},
			{Name: "--ca-certificate-file", Key: "ca_certificate_file", Value: o.CACertificateFile},
		},
	}
}

func (o Options) fromFlags() ([]settings.Change, error) {
	flags := o.flags()
	if !flags.Given() {
		return nil, config.Invalid(errors.New("no setting is given: use --service-url, --token-file, --deploy-target, --ca-certificate-file or --set, or answer the questions of configure on a terminal"))
	}
	for i, flag := range flags.List {
		if flag.Key != "token" || flag.Value == "" {
			continue
		}
		token, err := setup.ReadSecret(flag.Name, flag.Value, "token", o.In)
		if err != nil {
			return nil, err
		}
		flags.List[i].Value = token
	}
	return flags.Changes()
}
