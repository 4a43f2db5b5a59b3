"""Scripts that send their own messages to the trainer, change their descriptors, or print text that is nearly right.

A script must print the square of the number on the first line.
"""

from __future__ import annotations

from protocol_attacks import FRAME

_OUTPUTS = {
    "lst": "[4]",
    "num": "4",
    "named": "{'$named':['check',['given','output'],['2','4']]}",
    "inf": "{'$float':'inf'}",
    "builtin": "{'$builtin':'int'}",
    "obj": "{'$object':[0,'object',[]]}",
    "sur": "'\\ud800'",
}
SENDING_SCRIPTS = {
    **{f"sends_{name}": f"{FRAME}send({{'value': {value}}})\nos._exit(0)\n" for name, value in _OUTPUTS.items()},
    "forged_error": FRAME + "send({'error':{'names':['A\\n\\x1b[2J'],'text':'\\x1b]0;x\\x07'}})\n",
    "forged_huge": FRAME + "os.write(3,b'\\x7f\\xff\\xff\\xff')\nimport time;time.sleep(9)\n",
    "ls": "print('4\\u2028')\n",
    "nbsp": "print('\\xa04')\n",
    "under": "print('0_4')\n",
    "inf": "print('inf')\n",
    "lseek": "import os\nos.lseek(1,0,2)\nos.write(1,b'4');os.lseek(1,0,0)\n",
    "dup2": "import os\nos.dup2(0,1)\n",
    "swap": "import os\nos.dup2(3,1)\nprint(4)\n",
    "huge": "print('4\\n'*10**6)\n",
}
"""Name → script."""
SEPARATORS = ("\v", "\f", "\x1c", "\x85", "\u2028", "\r", " ")
"""Characters that are no line feed."""
