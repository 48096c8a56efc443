package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb"       // imports of schemas
	_ "google.golang.org/protobuf/types/known/durationpb"  // imports of schemas
	_ "google.golang.org/protobuf/types/known/emptypb"     // imports of schemas
	_ "google.golang.org/protobuf/types/known/fieldmaskpb" // imports of schemas
	_ "google.golang.org/protobuf/types/known/structpb"    // imports of schemas
	_ "google.golang.org/protobuf/types/known/timestamppb" // imports of schemas
	_ "google.golang.org/protobuf/types/known/wrapperspb"  // imports of schemas
)

// compileProtobuf uses the parser of protocompile alone, and protodesc for the names of types:
// the whole compiler is larger by 0.9 MB, for options, which the JSON of a message does not need.
func compileProtobuf(text string, refs []reference) (func([]byte) (json.RawMessage, error), error) {
	files := new(protoregistry.Files)
	for _, ref := range refs {
		if _, err := addFile(files, ref.name, ref.Schema.Schema); err != nil {
			return nil, err
		}
	}
	file, err := addFile(files, "registry.proto", text)
	if err != nil {
		return nil, err
	}
	types := dynamicpb.NewTypes(files)
	return func(b []byte) (json.RawMessage, error) {
		index, b, err := new(sr.ConfluentHeader).DecodeIndex(b, maxDepth)
		if err != nil {
			return nil, errors.New("the path of the message type is invalid")
		}
		d := messageAt(file, index)
		if d == nil {
			return nil, fmt.Errorf("the schema has no message type at %v", index)
		}
		m := dynamicpb.NewMessage(d)
		if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth, Resolver: types}).Unmarshal(b, m); err != nil {
			return nil, errors.New("the payload is no message of type " + string(d.FullName()))
		}
		if room := maxJSON; !fits(m, &room) {
			return nil, errTooLarge
		}
		// Values that are not sent are present, so that a condition on them can be decided.
		out, err := protojson.MarshalOptions{EmitDefaultValues: true, Resolver: types}.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("the message has no JSON: %s", clip(err.Error()))
		}
		var compact bytes.Buffer // protojson inserts spaces at random
		if err := json.Compact(&compact, out); err != nil {
			return nil, err
		}
		return compact.Bytes(), nil
	}, nil
}

// messageAt returns the message type at a path, or nil.
func messageAt(file protoreflect.FileDescriptor, index []int) (d protoreflect.MessageDescriptor) {
	in := file.Messages()
	for _, i := range index {
		if i < 0 || i >= in.Len() {
			return nil
		}
		d = in.Get(i)
		in = d.Messages()
	}
	return d
}

// fits reports whether the JSON of a message is not larger than room: fields that are not sent
// have values too, so that a few bytes can be much JSON.
func fits(m protoreflect.Message, room *int) bool {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		*room -= len(fields.Get(i).JSONName()) + 8
	}
	ok := *room >= 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { ok = ok && fits(v.Message(), room); return ok })
			}
		case f.IsList():
			for i := range v.List().Len() {
				if ok = ok && fits(v.List().Get(i).Message(), room); !ok {
					break
				}
			}
		default:
			ok = ok && fits(v.Message(), room)
		}
		return ok
	})
	return ok
}

// addFile adds a file and its imports of well-known types.
func addFile(files *protoregistry.Files, name, text string) (protoreflect.FileDescriptor, error) {
	if d, err := files.FindFileByPath(name); err == nil {
		return d, nil
	}
	h := reporter.NewHandler(nil)
	tree, err := parser.Parse(name, strings.NewReader(text), h)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ResultFromAST(tree, true, h)
	if err != nil {
		return nil, err
	}
	fd := parsed.FileDescriptorProto()
	for _, path := range fd.Dependency {
		if err := addImport(files, path); err != nil {
			return nil, err
		}
	}
	jsonNames(fd.MessageType)
	d, err := protodesc.NewFile(fd, files)
	if err != nil {
		return nil, err
	}
	return d, files.RegisterFile(d)
}

// addImport adds a file that is no reference: a well-known one, or one without types, such as
// one with options alone, which are not used.
func addImport(files *protoregistry.Files, path string) error {
	if _, err := files.FindFileByPath(path); err == nil {
		return nil
	}
	d, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil || !strings.HasPrefix(path, "google/protobuf/") {
		if d, err = protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String(path)}, files); err != nil {
			return err
		}
	}
	return files.RegisterFile(d)
}

// jsonNames applies the option json_name.
func jsonNames(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		jsonNames(m.NestedType)
		for _, f := range m.Field {
			for _, o := range f.GetOptions().GetUninterpretedOption() {
				if len(o.Name) == 1 && o.Name[0].GetNamePart() == "json_name" && !o.Name[0].GetIsExtension() {
					f.JsonName = proto.String(string(o.StringValue))
				}
			}
		}
	}
}
