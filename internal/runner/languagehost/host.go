package languagehost

import (
	"fmt"
	"net/http"
	"strings"
)

// service is the name of the service in the CLI's calls.
const service = "/pulumirpc.LanguageRuntime/"

// host answers the CLI.
type host struct{}

// ServeHTTP answers one call.
func (host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	c := &call{w, r}
	c.end(answer(c))
}

func answer(c *call) error {
	message, err := c.request()
	if err != nil {
		return err
	}
	switch method := strings.TrimPrefix(c.r.URL.Path, service); method {
	case "GetPluginInfo", "Handshake", "GetRequiredPackages", "GetRequiredPlugins", "RuntimeOptionsPrompts", "GetProgramDependencies", "About", "Cancel":
		return c.send(nil) // there is nothing to report
	case "InstallDependencies":
		request, err := parseInstall(message)
		if err != nil {
			return err
		}
		_, err = find(request.dir) // an incomplete pack is reported before it is needed
		return err
	case "RunPlugin":
		request, err := parseRun(message)
		if err != nil {
			return err
		}
		return run(c, request)
	case "Run":
		return &failure{codeUnimplemented, fmt.Sprintf("runtime: %s is the runtime of policy packs; Pulumi.yaml must name the program's language", Runtime)}
	default:
		return &failure{codeUnimplemented, fmt.Sprintf("%s has no method %s", Program, method)}
	}
}
