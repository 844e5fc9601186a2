package agents

import (
	"os"
	"path/filepath"
	"strings"
)

// Way is a way to install an agent.
type Way struct {
	Name, Text string
	// Steps are commands, each of one or more lines.
	Steps []Step
	Note  string
}

// Step is a command with what it does.
type Step struct{ Text, Command string }

// tokenPlace stands for the token in commands. The token itself is shown only once.
const tokenPlace = "TOKEN"

// imagePlace stands for the image in commands. The publisher decides its registry.
const imagePlace = "REGISTRY/customer-managed-workflow-agent:latest"

// OwnAuthority says what agents need if the server's certificate is not of a public authority.
const OwnAuthority = "If your own authority signed the server's certificate, copy the authority's certificate to the host, and add --ca-certificate-file FILE to configure. docs/private-ca.md describes it, also for pods."

// Ways returns the ways to install an agent for the server with a URL, which serves the releases in a
// directory, or none if it is "". The first way is for most machines.
func Ways(url, releases string) []Way {
	mirror := url + "/releases"
	note := ""
	if releases == "" {
		mirror = "https://MIRROR"
		note = "This server serves no releases. Replace https://MIRROR with the address of your mirror, or serve one with the server's setting releases."
	}
	channel := "stable"
	if releases != "" {
		// A mirror that was made from a checkout without a tag has no stable release.
		if _, err := os.Stat(filepath.Join(releases, "stable.txt")); err != nil {
			channel = "beta"
		}
	}
	with := func(text string) string {
		return strings.NewReplacer("{mirror}", mirror, "{channel}", channel, "{url}", url).Replace(text)
	}
	configure := Step{"Configure the agent. It asks for the token, so that the token is in no command line.", with("sudo customer-managed-workflow-agent configure --service-url {url}")}
	docker := Step{"Let the service use Docker, and start it.", "sudo customer-managed-workflow-agent service install --docker --start"}
	return []Way{
		{"script", "Script", []Step{
			{"Install the agent for the whole machine, on Linux or macOS.", with("curl -fsSL {mirror}/install.sh | sudo sh -s -- --mirror {mirror}")},
			configure,
			{"Start the service.", "sudo customer-managed-workflow-agent service start"},
		}, note},
		{"deb", "deb", []Step{
			{"Add the repository, on Debian or Ubuntu.", with("sudo curl -fsSL {mirror}/apt/customer-managed-workflow-agent.sources -o /etc/apt/sources.list.d/customer-managed-workflow-agent.sources")},
			{"Install the package.", "sudo apt-get update && sudo apt-get install customer-managed-workflow-agent"},
			docker, configure,
		}, note},
		{"rpm", "rpm", []Step{
			{"Add the repository, on Fedora, RHEL or a relative.", with("sudo curl -fsSL {mirror}/yum/customer-managed-workflow-agent.repo -o /etc/yum.repos.d/customer-managed-workflow-agent.repo")},
			{"Install the package.", "sudo dnf install customer-managed-workflow-agent"},
			docker, configure,
		}, note},
		{"homebrew", "Homebrew", []Step{
			{"Create a local tap with the formula.", with(`MIRROR={mirror}
VERSION=$(curl -fsSL "$MIRROR/{channel}.txt" | sed -n 's/^version: //p')
brew tap-new --no-git local/agent
curl -fsSL "$MIRROR/$VERSION/customer-managed-workflow-agent.rb" \
  -o "$(brew --repository local/agent)/Formula/customer-managed-workflow-agent.rb"`)},
			{"Install the agent.", "brew install local/agent/customer-managed-workflow-agent"},
			{"Configure the agent. It asks for the token.", with(`customer-managed-workflow-agent configure --service-url {url} --config "$(brew --prefix)/etc/pulumi-workflow-agent.yaml"`)},
			{"Start the service.", "brew services start customer-managed-workflow-agent"},
		}, note},
		{"docker", "Docker", []Step{
			{"Write the settings to a file. Replace " + tokenPlace + " with a token of the pool.", with(`umask 077
cat >agent.env <<END
PULUMI_AGENT_SERVICE_URL={url}
PULUMI_AGENT_TOKEN=` + tokenPlace + `
END`)},
			{"Start the agent. Replace REGISTRY with your publisher's registry.", `SOCKET=/var/run/docker.sock
docker run --detach --name workflow-agent --restart unless-stopped --stop-timeout 30 \
  --read-only --cap-drop ALL --security-opt no-new-privileges \
  --group-add "$(stat -c %g "$SOCKET")" --volume "$SOCKET":/var/run/docker.sock \
  --volume workflow-agent:/var/lib/workflow-agent --env-file agent.env ` + imagePlace},
		}, "The socket of the engine makes the agent root in all but name. Jobs cannot use the socket."},
		{"kubernetes", "Kubernetes", []Step{
			{"Write the token to the file pool-token, and create a Secret from it.", `kubectl create namespace workflow-agent
kubectl -n workflow-agent create secret generic pool --from-file=PULUMI_AGENT_TOKEN=pool-token`},
			{"Install the chart from a checkout of the sources. Replace REGISTRY with your publisher's registry.", with(`helm install agent packaging/helm/agent --namespace workflow-agent \
  --set image.repository=REGISTRY/customer-managed-workflow-agent --set image.tag=latest \
  --set agent.serviceUrl={url} --set agent.existingSecretName=pool`)},
		}, "Each job runs in a pod. The server's address must be reachable from pods, so it must not be a loopback address."},
	}
}
