package evaluator

import (
	"encoding/json"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/esc"

	"workflowagent/internal/esc/wire"
)

// exporter converts the evaluator's values to those of package wire, within the limits.
type exporter struct {
	details bool
	left    int
}

func exportValues(values map[string]esc.Value, details bool) (wire.Values, error) {
	e := &exporter{details: details, left: wire.MaxValues}
	return e.object(values, 0)
}

func (e *exporter) object(values map[string]esc.Value, depth int) (map[string]wire.Value, error) {
	object := make(map[string]wire.Value, len(values))
	for key, value := range values {
		member, err := e.value(value, depth)
		if err != nil {
			return nil, err
		}
		object[key] = member
	}
	return object, nil
}

func (e *exporter) value(value esc.Value, depth int) (wire.Value, error) {
	if depth >= wire.MaxNesting {
		return wire.Value{}, fmt.Errorf("the environment's values are nested more than %d deep", wire.MaxNesting)
	}
	if e.left--; e.left < 0 {
		return wire.Value{}, fmt.Errorf("the environment has more than %d values", wire.MaxValues)
	}
	exported := wire.Value{Value: value.Value, Secret: value.Secret, Unknown: value.Unknown}
	var err error
	switch content := value.Value.(type) {
	case json.Number:
		if !json.Valid([]byte(content)) {
			return wire.Value{}, fmt.Errorf("the number %s cannot be a value of an environment, because JSON does not have it", content)
		}
	case []esc.Value:
		list := make([]wire.Value, len(content))
		for i, element := range content {
			if list[i], err = e.value(element, depth+1); err != nil {
				return wire.Value{}, err
			}
		}
		exported.Value = list
	case map[string]esc.Value:
		if exported.Value, err = e.object(content, depth+1); err != nil {
			return wire.Value{}, err
		}
	}
	if e.details {
		if exported.Trace, err = json.Marshal(value.Trace); err != nil {
			return wire.Value{}, err
		}
	}
	return exported, nil
}

func exportEnvironment(environment *esc.Environment, details bool) (*wire.Environment, error) {
	if environment == nil {
		return nil, nil
	}
	properties, err := exportValues(environment.Properties, details)
	if err != nil {
		return nil, err
	}
	exported := &wire.Environment{Properties: properties}
	if !details {
		return exported, nil
	}
	for _, one := range []struct {
		value any
		into  *json.RawMessage
	}{
		{environment.Exprs, &exported.Expressions},
		{environment.Schema, &exported.Schema},
		{environment.ExecutionContext, &exported.ExecutionContext},
	} {
		if *one.into, err = json.Marshal(one.value); err != nil {
			return nil, fmt.Errorf("the details of the environment: %w", err)
		}
	}
	return exported, nil
}

func importValues(values wire.Values) map[string]esc.Value {
	imported := make(map[string]esc.Value, len(values))
	for key, value := range values {
		imported[key] = importValue(value)
	}
	return imported
}

func importValue(value wire.Value) esc.Value {
	imported := esc.Value{Value: value.Value, Secret: value.Secret, Unknown: value.Unknown}
	switch content := value.Value.(type) {
	case []wire.Value:
		list := make([]esc.Value, len(content))
		for i, element := range content {
			list[i] = importValue(element)
		}
		imported.Value = list
	case map[string]wire.Value:
		imported.Value = importValues(content)
	}
	return imported
}
