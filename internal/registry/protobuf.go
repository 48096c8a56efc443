package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb"       // imports of schemas
	_ "google.golang.org/protobuf/types/known/apipb"       // imports of schemas
	_ "google.golang.org/protobuf/types/known/durationpb"  // imports of schemas
	_ "google.golang.org/protobuf/types/known/emptypb"     // imports of schemas
	_ "google.golang.org/protobuf/types/known/fieldmaskpb" // imports of schemas
	_ "google.golang.org/protobuf/types/known/structpb"    // imports of schemas
	_ "google.golang.org/protobuf/types/known/timestamppb" // imports of schemas
	_ "google.golang.org/protobuf/types/known/wrapperspb"  // imports of schemas
)

// mainFile is the name of the file of a schema. No file can import it, and no reference has it.
const mainFile = "(schema)"

// unexpanded is a resolver for google.protobuf.Any that does not decode its content: a few
// bytes could be much JSON, and types that contain each other take quadratic time.
type unexpanded struct {
	*dynamicpb.Types
	empty protoreflect.MessageType
}

// FindMessageByURL implements protoregistry.MessageTypeResolver.
func (u unexpanded) FindMessageByURL(string) (protoreflect.MessageType, error) { return u.empty, nil }

// compileProtobuf uses the parser of protocompile alone, and protodesc for the names of types:
// the whole compiler is larger by 0.9 MB, for options, which the JSON of a message does not need.
func compileProtobuf(text string, refs []reference) (func([]byte) (json.RawMessage, error), error) {
	files := new(protoregistry.Files)
	for _, ref := range refs {
		if _, err := files.FindFileByPath(ref.name); err == nil {
			continue
		}
		if _, err := addFile(files, ref.name, ref.Schema.Schema); err != nil {
			return nil, err
		}
	}
	file, err := addFile(files, mainFile, text)
	if err != nil {
		return nil, err
	}
	empty, err := addFile(new(protoregistry.Files), mainFile, `syntax = "proto3"; message Empty {}`)
	if err != nil {
		return nil, err
	}
	types := unexpanded{dynamicpb.NewTypes(files), dynamicpb.NewMessageType(empty.Messages().Get(0))}
	var enums sync.Map
	return func(b []byte) (json.RawMessage, error) {
		index, b, err := new(sr.ConfluentHeader).DecodeIndex(b, maxDepth)
		if err != nil {
			return nil, errors.New("the path of the message type is invalid")
		}
		d := messageAt(file, index)
		if d == nil {
			return nil, fmt.Errorf("the schema has no message type at %v", index)
		}
		if z := (sizer{maxJSON, &enums}); !z.message(d, b, 0) {
			return nil, errTooLarge
		}
		m := dynamicpb.NewMessage(d)
		if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth, Resolver: types}).Unmarshal(b, m); err != nil {
			return nil, errors.New("the payload is no message of type " + string(d.FullName()))
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

// sizer bounds a message before it is decoded: fields that are not sent have values in JSON too,
// and a field of two bytes can be a message, so that a few bytes can be much JSON and memory.
type sizer struct {
	room  int       // for JSON, in bytes
	enums *sync.Map // lengths of the longest names
}

// messageCost is the size of a message without fields: about half of its memory.
const messageCost = 256

// message reports whether the JSON of an encoded message is not larger than the room. Invalid
// encodings are left to the decoder.
func (z *sizer) message(d protoreflect.MessageDescriptor, b []byte, depth int) bool {
	z.room -= messageCost
	for i := range d.Fields().Len() {
		z.room -= len(d.Fields().Get(i).JSONName()) + z.value(d.Fields().Get(i))
	}
	for len(b) > 0 && z.room >= 0 && depth <= maxDepth {
		number, wire, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, wire, b[max(n, 0):])
		if n < 0 || size < 0 {
			break
		}
		value := b[n : n+size]
		b = b[n+size:]
		f := d.Fields().ByNumber(number)
		if f == nil {
			continue
		}
		if wire == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		switch {
		case f.Message() != nil:
			z.message(f.Message(), value, depth+1)
		case f.Kind() == protoreflect.BytesKind:
			z.room -= len(value)/3*4 + 8
		case f.Kind() == protoreflect.StringKind:
			z.room -= len(value) + 8
			for _, c := range value {
				if c < ' ' {
					z.room -= len("\\u000")
				} else if c == '"' || c == '\\' {
					z.room--
				}
			}
		case wire == protowire.Fixed32Type || wire == protowire.Fixed64Type:
			z.room -= 32
		default: // a packed list has a number in each byte at most
			z.room -= len(value) * z.value(f)
		}
	}
	return z.room >= 0
}

// value returns the largest size of a number or an enum.
func (z *sizer) value(f protoreflect.FieldDescriptor) int {
	e := f.Enum()
	if e == nil {
		return 8
	}
	if n, ok := z.enums.Load(e.FullName()); ok {
		return n.(int)
	}
	n := 8
	for i := range e.Values().Len() {
		n = max(n, len(e.Values().Get(i).Name())+8)
	}
	z.enums.Store(e.FullName(), n)
	return n
}

// addFile adds a file and its imports of well-known types.
func addFile(files *protoregistry.Files, name, text string) (protoreflect.FileDescriptor, error) {
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
	aliases(fd.EnumType)
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
	if text, ok := wellKnown[path]; ok {
		_, err := addFile(files, path, `syntax = "proto3"; `+text)
		return err
	}
	d, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil || !strings.HasPrefix(path, "google/protobuf/") {
		d, err = protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String(path)}, files)
	}
	if err != nil {
		return err
	}
	for i := range d.Imports().Len() {
		if err := addImport(files, d.Imports().Get(i).Path()); err != nil {
			return err
		}
	}
	return files.RegisterFile(d)
}

// aliases applies the option allow_alias.
func aliases(enums []*descriptorpb.EnumDescriptorProto) {
	for _, e := range enums {
		for _, o := range e.GetOptions().GetUninterpretedOption() {
			if len(o.Name) == 1 && o.Name[0].GetNamePart() == "allow_alias" && !o.Name[0].GetIsExtension() {
				e.Options.AllowAlias = proto.Bool(o.GetIdentifierValue() == "true")
			}
		}
	}
}

// jsonNames applies the option json_name, and allow_alias to the enums of messages.
func jsonNames(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		aliases(m.EnumType)
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
