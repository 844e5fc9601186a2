package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/service"
)

const noService = "no service of this machine reads this configuration"

// checkFiles checks that the service's account can read the files that the configuration names.
func (e *examination) checkFiles(context.Context) checkup.Result {
	c, s := e.opts.Config, e.opts.Service
	if s == nil {
		return checkup.Skip(noService)
	}
	account, err := checkup.AccountNamed(s.Account)
	if err != nil {
		return checkup.Fail("the service "+s.Name+" runs as "+s.Account+": "+err.Error(), "run service install again, with --account to choose another user")
	}
	files := []checkup.NamedFile{
		{Key: "the configuration", Path: c.File()},
		{Key: "ca_certificate_file", Path: c.CACertificateFile},
		{Key: "oidc_token_file", Path: c.OIDCTokenFile},
		{Key: "pulumi_checksums_file", Path: c.Mirror.Checksums},
	}
	return account.Readable("the service's", slices.DeleteFunc(files, func(f checkup.NamedFile) bool {
		_, err := os.Lstat(f.Path)
		return f.Path == "" || f.Path == c.File() && errors.Is(err, fs.ErrNotExist) // configure has not written it yet
	}))
}

// checkService compares the sandbox of the service with the place where jobs run.
func (e *examination) checkService(context.Context) checkup.Result {
	s, target := e.opts.Service, e.opts.Config.DeployTarget
	if s == nil {
		return checkup.Skip(noService)
	}
	install := service.DefaultName + " service install"
	if s.Name != service.DefaultName {
		install += " --name " + s.Name
	}
	switch process := s.Profile == service.ProfileProcess; {
	case e.opts.ServiceErr != nil:
		return checkup.Fail(e.opts.ServiceErr.Error(), "create the missing user or group, or run: "+install+" --start")
	case target == config.TargetProcess && !process:
		return checkup.Fail("the sandbox of the service "+s.Name+" is for jobs in containers, but deploy_target is process", "change the sandbox with: "+install+" --process --start")
	case target != config.TargetProcess && process:
		return checkup.Warn("the sandbox of the service "+s.Name+" is the less strict one for jobs as processes, but deploy_target is "+string(target),
			"change the sandbox with: "+install+" --process=false --start")
	}
	return checkup.OK("the sandbox of the service " + s.Name + " is that of deploy_target " + string(target))
}
