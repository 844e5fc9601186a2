package api_test

import (
	"bytes"
	"context"
	"errors"
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
)

// openAPIEnv is the environment variable with the path of the public API's OpenAPI description. A
// second description, whose name ends with "-more.json", lies next to it and describes other routes.
const openAPIEnv = "WORKFLOW_OPENAPI"

// misdescribed lists the operations for which real clients expect a form that differs from the
// description.
var misdescribed = map[string]string{
	"FetchRestSpecification":          "the description is JSON, not a list of bytes",
	"ExportStack":                     "the deployment of an empty stack is null",
	"ExportStackAtVersion":            "the deployment of an empty stack is null",
	"EncryptValue":                    "a ciphertext is a base64 string, not a list",
	"DecryptValue":                    "a plaintext is a base64 string, not a list",
	"BatchEncryptValue":               "ciphertexts are a list of base64 strings, not a list of lists",
	"BatchDecryptValue":               "plaintexts are base64 strings, not lists",
	"GetEngineEvents_update":          "the continuation token is null at the end",
	"GetEngineEvents_preview":         "the continuation token is null at the end",
	"GetEngineEvents_refresh":         "the continuation token is null at the end",
	"GetEngineEvents_destroy":         "the continuation token is null at the end",
	"GetStackUpdates":                 "has two shapes",
	"Version":                         "the CLI's own version is echoed",
	"GetDeploymentLogs":               "has two shapes",
	"EncryptDeploymentSettingsSecret": "secrets are objects with a ciphertext",
}

var contract struct {
	once    sync.Once
	routers []routers.Router
	err     error
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
	if policy := doc.Components.Schemas["AuthPolicyDefinition"]; policy != nil {
		policy.Value.Properties["rules"].Value.AdditionalProperties = openapi3.AdditionalProperties{}
	}
	router, err := legacy.NewRouter(doc, openapi3.DisableExamplesValidation(), openapi3.DisableSchemaDefaultsValidation())
	if err == nil {
		contract.routers = append(contract.routers, router)
	}
	return err
}

// checkContract compares a response with the description of the public API. It accepts operations
// and statuses that the description does not list.
func checkContract(t testing.TB, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	contract.once.Do(loadContract)
	if contract.err != nil {
		t.Fatalf("reading the description of the public API: %v", contract.err)
	}
	plain := req.Clone(context.Background())
	plain.URL = &url.URL{Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
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
	if _, known := misdescribed[route.Operation.OperationID]; known {
		return
	}
	described := route.Operation.Responses.Status(res.StatusCode)
	if described == nil || described.Value == nil || len(described.Value.Content) == 0 {
		if res.StatusCode < 300 && described == nil {
			t.Errorf("%s %s: status %d, which the public API does not describe", req.Method, req.URL.Path, res.StatusCode)
		}
		return
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: plain, PathParams: params, Route: route},
		Status:                 res.StatusCode,
		Header:                 res.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{MultiError: true},
	})
	if err != nil {
		var multi openapi3.MultiError
		if errors.As(err, &multi) && len(multi) > 3 {
			err = multi[:3]
		}
		t.Errorf("%s %s: the response differs from the public API: %v", req.Method, req.URL.Path, err)
	}
}
