package runner

import (
	"fmt"
	"regexp"
	"slices"

	"workflowagent/internal/runner/languagehost"
)

// missingHost matches the CLI's message about a policy pack whose runtime has no language host.
var missingHost = regexp.MustCompile(`policy pack (\S+): .*no language plugin 'pulumi-language-([\w-]+)' found`)

// watchHosts remembers which policy pack had no language host. p follows the incomplete line.
func (s *logSink) watchHosts(p []byte) {
	found := missingHost.FindSubmatch(p)
	if found == nil && len(s.current) > 0 {
		found = missingHost.FindSubmatch(append(slices.Clip(s.current), p[:min(len(p), maxLastLine)]...))
	}
	if found != nil {
		s.hostless = adviseHost(string(found[1]), string(found[2]))
	}
}

// adviseHost returns what to do about a policy pack without a language host.
func adviseHost(pack, language string) string {
	text := fmt.Sprintf("the policy pack %s, which the stack requires, needs the program pulumi-language-%s", pack, language)
	if language == languagehost.Runtime {
		return text + ", which the runner could not install: add the program to the image"
	}
	return text + ": use an image that contains it and its language, such as pulumi/pulumi, or publish the pack as a program (runtime: executable)"
}

// missingHost returns what to do about a policy pack without a language host, or "".
func (l *stepLog) missingHost() string {
	_ = l.masked.Flush()
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	return l.sink.hostless
}
