package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/checkup"
	"workflowagent/internal/termtext"
)

// defaultImage is the image for jobs that specify none, both on Pulumi Cloud and on
// workflow-server.
const defaultImage = "pulumi/pulumi:latest"

func (e *examination) checkEngine(ctx context.Context) checkup.Result {
	if e.opts.Engine == nil {
		return checkup.Fail(e.opts.ExecutorErr.Error(), "correct the configuration of the Docker target")
	}
	facts, err := e.opts.Engine.Examine(ctx)
	if err != nil {
		return checkup.Fail(splitAdvice(err.Error(), "start the Docker Engine, or set DOCKER_HOST to its address"))
	}
	e.facts = facts
	if facts.OS != "linux" {
		return checkup.Fail(fmt.Sprintf("the Docker Engine at %s runs %s containers", facts.Host, facts.OS), "switch it to Linux containers")
	}
	found := fmt.Sprintf("Docker Engine %s at %s, API %s, linux/%s", facts.Version, facts.Host, facts.APIVersion, facts.Arch)
	var details []string
	if facts.Origin != "" {
		details = append(details, "found by "+facts.Origin)
	}
	if facts.Rootless {
		details = append(details, "rootless: containers have their own network")
	}
	if !facts.SameHost {
		details = append(details, "on another host, or in a virtual machine: "+facts.Name)
	}
	known := knownEscapes(facts.Components)
	all := slices.Concat([]string{found}, details, known)
	switch {
	case facts.Open:
		return checkup.Warn("the Docker Engine at "+facts.Host+" is reached without TLS: every program that reaches this address is root on its host",
			"use its socket, or protect it with TLS (DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH)", all...)
	case len(known) > 0:
		return checkup.Warn("known container escapes exist for this engine's versions",
			"update the engine with its containerd and runc, unless your distribution has fixed these versions", all...)
	}
	return checkup.OK(found, append(details, "not affected by the container escapes that were published until "+EscapesUntil().Format(time.DateOnly))...)
}

// splitAdvice splits an error text of the form "finding: advice". For other texts, it returns the
// given advice.
func splitAdvice(text, advice string) (found, what string) {
	if before, after, ok := strings.Cut(text, ": "); ok && !strings.Contains(after, ": ") {
		return before, after
	}
	return text, advice
}

func (e *examination) checkEngineDisk(context.Context) checkup.Result {
	dir := e.facts.RootDirectory
	if !e.facts.SameHost || dir == "" {
		return checkup.Skip("the engine is on another host; its disk cannot be examined from here")
	}
	return e.space(dir, "images and containers", "remove unused images and volumes (docker system prune), or give the engine a larger disk")
}

func (e *examination) checkImage(ctx context.Context) checkup.Result {
	c := e.opts.Config
	named := cmp.Or(e.opts.JobImage, c.Agent.OverrideImageReference)
	image, asked := cmp.Or(named, defaultImage), named != ""
	advice := "check the image's name, the registry's credentials on this host (docker login as the agent's user), and the engine's connection to the registry"
	switch {
	case !c.AllowsImage(image):
		if !asked {
			return checkup.Skip("allowed_images does not allow " + image + ": name another one with --job-image")
		}
		return checkup.Fail("allowed_images does not allow "+image, "add it to allowed_images, or name another image")
	case e.opts.Offline && c.Docker.PullImage:
		return checkup.Skip("skipped, because of --offline: " + image + " would be pulled")
	}
	arch, err := e.opts.Engine.EnsureImage(ctx, image, e.opts.Progress)
	if err != nil {
		if !c.Docker.PullImage {
			advice = "pull the image on the engine's host, or set pull_image to true"
		}
		if !asked {
			return checkup.Warn(err.Error(), advice+"; or name the image of your jobs with --job-image")
		}
		return checkup.Fail(err.Error(), advice)
	}
	e.image = image
	found := image + " can be pulled"
	if !c.Docker.PullImage {
		found = image + " exists (pull_image is false)"
	}
	if arch != e.facts.Arch {
		return checkup.Warn(fmt.Sprintf("%s, made for %s on a %s engine", found, arch, e.facts.Arch), "use an image for the engine's architecture: emulation is slow and may not work")
	}
	return checkup.OK(found + ", made for " + arch)
}

func (e *examination) checkEmbeddable(ctx context.Context) checkup.Result {
	arch := cmp.Or(e.facts.Arch, runtime.GOARCH) // without an engine, this machine's
	path, err := executor.FindEmbeddable(e.opts.Config.WorkingDirectory, arch)
	if err != nil {
		return checkup.Fail(err.Error(), "install the complete archive or package, or set working_directory to its directory")
	}
	if runtime.GOOS != "linux" || arch != runtime.GOARCH {
		return checkup.OK(path + " is a static runner for linux/" + arch)
	}
	return e.sameVersion(ctx, path)
}

func (e *examination) checkRunner(ctx context.Context) checkup.Result {
	path, err := executor.FindRunner(e.opts.Config.WorkingDirectory)
	if err != nil {
		return checkup.Fail(splitAdvice(err.Error(), "install the complete archive or package, or set working_directory to its directory"))
	}
	return e.sameVersion(ctx, path)
}

func (e *examination) sameVersion(ctx context.Context, path string) checkup.Result {
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = trialCleanup
	out, err := cmd.Output()
	if err != nil {
		return checkup.Fail(fmt.Sprintf("%s does not run: %v", path, checkup.Reason(err)), "install it again, from the archive or package of this agent")
	}
	return e.versions(path, termtext.OneLine(strings.TrimSpace(string(out)), 0))
}

func (e *examination) versions(what, version string) checkup.Result {
	if version != e.opts.Version {
		return checkup.Warn(fmt.Sprintf("%s is version %s, and the agent %s", what, version, e.opts.Version), "install both from one archive or package")
	}
	return checkup.OK(what + " is version " + version)
}
