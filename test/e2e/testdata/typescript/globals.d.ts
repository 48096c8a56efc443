// What the program uses of Node, whose own declarations it does without.
declare const process: { argv: string[] };
