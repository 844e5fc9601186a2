package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"workflowagent/internal/dev/publicapi"
)

// openAPIEnv is the environment variable with the path of the public API's OpenAPI description. A
// second description, whose name ends with "-more.json", lies next to it and describes other routes.
const openAPIEnv = "WORKFLOW_OPENAPI"

// misdescribed contains the schemas of responses for which real clients expect a form that differs
// from the description. A nil schema stands for a response that is not JSON.
var misdescribed = map[string]*openapi3.Schema{
	// The description is JSON, not a list of bytes.
	"FetchRestSpecification": schema(`{"type":"object","required":["openapi","info","paths","components"]}`),
	// The runner is a binary, not an object.
	"GetPulumiDeployExecutor": nil,
	// The description lacks the capabilities of newer clients.
	"Capabilities": schema(`{"type":"object","required":["capabilities"],"properties":{"capabilities":{"type":"array","items":{
		"type":"object","required":["capability"],"properties":{"capability":{"type":"string"},"version":{"type":"integer"}}}}}}`),
	// Definitions are YAML.
	"ReadEnvironment_esc_environments":             nil,
	"ReadEnvironment_esc_environments_versions":    nil,
	"HeadEnvironment_esc_environments":             nil,
	"DecryptEnvironment_esc_environments":          nil,
	"DecryptEnvironment_esc_environments_versions": nil,
	// The deployment of an empty stack is null.
	"ExportStack":          exported,
	"ExportStackAtVersion": exported,
	// Texts are base64, not lists.
	"EncryptValue":      schema(`{"type":"object","required":["ciphertext"],"properties":{"ciphertext":{"type":"string","format":"byte"}}}`),
	"DecryptValue":      schema(`{"type":"object","required":["plaintext"],"properties":{"plaintext":{"type":"string","format":"byte"}}}`),
	"BatchEncryptValue": schema(`{"type":"object","required":["ciphertexts"],"properties":{"ciphertexts":{"type":"array","items":{"type":"string","format":"byte"}}}}`),
	"BatchDecryptValue": schema(`{"type":"object","required":["plaintexts"],"properties":{"plaintexts":{"type":"object","additionalProperties":{"type":"string","format":"byte"}}}}`),
	// The continuation token is null at the end.
	"GetEngineEvents_update":  engineEvents,
	"GetEngineEvents_preview": engineEvents,
	"GetEngineEvents_refresh": engineEvents,
	"GetEngineEvents_destroy": engineEvents,
	// The log of a deployment, or of one of its steps.
	"GetDeploymentLogs": schema(`{"type":"object","required":["lines"],"properties":{
		"lines":{"type":"array","items":{"type":"object","required":["timestamp"],
			"anyOf":[{"required":["header"]},{"required":["line"]}],"properties":{
			"header":{"type":"string"},"timestamp":{"type":"string","format":"date-time"},"line":{"type":"string"}}}},
		"nextToken":{"type":"string"},"nextOffset":{"type":"integer"}}}`),
	// The values of groups are texts and numbers.
	"ListPolicyIssues": schema(`{"type":"object","required":["policyIssues","groupData"],"properties":{
		"policyIssues":{"type":"array","items":{"type":"object","required":["entityId","entityProject","entityType","id","kind","level","observedAt",
			"policyName","policyPack","policyPackTag","priority","resourceName","resourceProvider","resourceType","resourceURN","severity","status"]}},
		"groupData":{"type":"array","items":{"type":"object"}},"rowCount":{"type":"integer"}}}`),
	// A secret that the server has encrypted has no plaintext.
	"EncryptDeploymentSettingsSecret": schema(`{"type":"object","required":["ciphertext"],"properties":{"ciphertext":{"type":"string"}}}`),
}

var (
	exported = schema(`{"type":"object","required":["version","deployment"],"properties":{
		"version":{"type":"integer"},"features":{"type":"array","items":{"type":"string"}},"deployment":{"type":"object","nullable":true}}}`)
	engineEvents = schema(`{"type":"object","required":["events","continuationToken"],"properties":{
		"events":{"type":"array","items":{"type":"object","required":["sequence","timestamp"],"properties":{
			"sequence":{"type":"integer"},"timestamp":{"type":"integer"}}}},
		"continuationToken":{"type":"string","nullable":true}}}`)
)

func schema(text string) *openapi3.Schema {
	var s openapi3.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(fmt.Sprintf("the schema %s: %v", text, err))
	}
	return &s
}

var contract struct {
	once       sync.Once
	routers    []routers.Router
	operations []string // in the descriptions, as [publicapi.Shape] returns them
	err        error

	mu       sync.Mutex
	answered map[string]bool // operations that a request of the tests completed with a valid response
}

// loadContract reads the description from the path in the environment, or from a default path
// outside the repository. If the description is missing, responses are not checked.
func loadContract() {
	path := os.Getenv(openAPIEnv)
	if path == "" {
		path = filepath.Join("..", "..", "..", "..", "shared", "reference", "pulumi-openapi.json")
		if _, err := os.Stat(path); err != nil {
			return
		}
	}
	contract.err = loadDescription(path)
	if more := strings.TrimSuffix(path, ".json") + "-more.json"; contract.err == nil {
		if _, err := os.Stat(more); err == nil {
			contract.err = loadDescription(more)
		}
	}
}

func loadDescription(path string) error {
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		return err
	}
	doc.Servers = nil
	// These types have several forms in requests and responses, but the description lists one:
	// secrets are strings or objects, and images without credentials are strings. It describes the
	// in-memory form of keys, and describes claim patterns as objects.
	for _, name := range []string{"SecretValue", "DockerImage", "JSONWebKey"} {
		if schema := doc.Components.Schemas[name]; schema != nil {
			*schema.Value = openapi3.Schema{}
		}
	}
	// A schedule's definition also contains the id of the stack, a string.
	if action := doc.Components.Schemas["ScheduledAction"]; action != nil {
		action.Value.Properties["definition"].Value.AdditionalProperties = openapi3.AdditionalProperties{}
	}
	if policy := doc.Components.Schemas["AuthPolicyDefinition"]; policy != nil {
		policy.Value.Properties["rules"].Value.AdditionalProperties = openapi3.AdditionalProperties{}
	}
	// Properties of resources have any type.
	if resource := doc.Components.Schemas["Resource"]; resource != nil {
		for _, name := range []string{"inputs", "outputs", "providerInputs"} {
			resource.Value.Properties[name].Value.AdditionalProperties = openapi3.AdditionalProperties{}
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			contract.operations = append(contract.operations, publicapi.Shape(method, path))
		}
	}
	router, err := legacy.NewRouter(doc, openapi3.DisableExamplesValidation(), openapi3.DisableSchemaDefaultsValidation())
	if err == nil {
		contract.routers = append(contract.routers, router)
	}
	return err
}

// checkContract compares a response with the description of the public API. It accepts operations,
// and statuses of errors, that the description does not list.
func checkContract(t testing.TB, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	contract.once.Do(loadContract)
	if contract.err != nil {
		t.Fatalf("reading the description of the public API: %v", contract.err)
	}
	plain := req.Clone(context.Background())
	plain.URL = &url.URL{Path: req.URL.EscapedPath(), RawQuery: req.URL.RawQuery} // an escaped slash does not end a parameter
	plain.Body = http.NoBody
	var route *routers.Route
	var params map[string]string
	for _, router := range contract.routers {
		found, values, err := router.FindRoute(plain)
		if err == nil {
			route, params = found, values
			break
		}
	}
	if route == nil {
		return
	}
	if err := checkResponse(plain, route, params, res, body); err != nil {
		t.Errorf("%s %s: the response differs from the public API: %v", req.Method, req.URL.Path, err)
		return
	}
	if res.StatusCode < 300 {
		contract.mu.Lock()
		defer contract.mu.Unlock()
		if contract.answered == nil {
			contract.answered = map[string]bool{}
		}
		contract.answered[publicapi.Shape(route.Method, route.Path)] = true
	}
}

// createsWithSecret are operations that return a new integration with the secret of its webhook, which
// no later response contains (ADR 30). The public API describes other statuses.
var createsWithSecret = map[string]bool{
	"/api/console/orgs/{orgName}/integrations/azure-devops": true,
	"/api/console/orgs/{orgName}/integrations/bitbucket":    true,
	"/api/console/orgs/{orgName}/integrations/github":       true,
	"/api/console/orgs/{orgName}/integrations/gitlab":       true,
}

func checkResponse(req *http.Request, route *routers.Route, params map[string]string, res *http.Response, body []byte) error {
	described := route.Operation.Responses.Status(res.StatusCode)
	if res.StatusCode == http.StatusCreated && createsWithSecret[route.Path] {
		return nil
	}
	if res.StatusCode < 300 && described == nil {
		return fmt.Errorf("status %d, which the public API does not describe", res.StatusCode)
	}
	if s, ok := misdescribed[route.Operation.OperationID]; ok {
		if res.StatusCode >= 300 || s == nil {
			return nil
		}
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			return err
		}
		return s.VisitJSON(value)
	}
	if described == nil || described.Value == nil || len(described.Value.Content) == 0 {
		return nil
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 res.StatusCode,
		Header:                 res.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{MultiError: true},
	})
	var multi openapi3.MultiError
	if errors.As(err, &multi) && len(multi) > 3 {
		return multi[:3]
	}
	return err
}
