package system

import (
	_ "embed"
	"net/http"

	"workflowagent/internal/server/api/web"
)

// The JSON Schemas of the configuration files of the agent and the server, with which editors check
// such a file. The command internal/dev/settingsdoc generates them.
var (
	//go:embed schemas/pulumi-workflow-agent.schema.json
	agentSchema []byte
	//go:embed schemas/workflow-server.schema.json
	serverSchema []byte
)

func registerSchemas(rt *web.Router) {
	for path, schema := range map[string][]byte{
		"/schemas/pulumi-workflow-agent.schema.json": agentSchema,
		"/schemas/workflow-server.schema.json":       serverSchema,
	} {
		rt.Public(http.MethodGet, path, func(w http.ResponseWriter, r *http.Request) error {
			return web.WriteRaw(w, r, http.StatusOK, schema)
		})
	}
}
