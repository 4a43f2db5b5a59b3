"""Scripts that send their own messages to the trainer, change their descriptors, or print text that is nearly right.

A script must print the square of the number on the first line.
"""

from __future__ import annotations

from protocol_attacks import FRAME

_OUTPUTS = {
    "lst": "[4]",
    "num": "4",
    "none": "None",
    "true": "True",
    "named": "{'$named':['check',['given','output'],['2','4']]}",
    "named2": "{'$named':['print',['sep'],['']]}",
    "named3": "{'$named':['str',['object'],['4']]}",
    "named4": "{'$named':['float',[],[]]}",
    "inf": "{'$float':'inf'}",
    "dec": "{'$decimal':'4'}",
    "builtin": "{'$builtin':'int'}",
    "byt": "{'$bytes':'34'}",
    "deq": "{'$deque':[]}",
    "obj": "{'$object':[0,'object',[]]}",
    "err": "{}",
    "tup": "{'$tuple':['4']}",
    "sur": "'\\ud800'",
}
SENDING_SCRIPTS = {
    **{f"sends_{name}": f"{FRAME}send({{'value': {value}}})\nos._exit(0)\n" for name, value in _OUTPUTS.items()},
    "forged_error": FRAME + "send({'error':{'names':['A\\n\\x1b[2J'],'text':'\\x1b]0;x\\x07'}})\n",
    "forged_error2": FRAME + "send({'error':[]})\n",
    "forged_huge": FRAME + "os.write(3,b'\\x7f\\xff\\xff\\xff')\nimport time;time.sleep(9)\n",
    "ls": "print('4\\u2028')\n",
    "vt": "print('4\\x0b')\n",
    "bom": "print('\\ufeff4')\n",
    "nbsp": "print('\\xa04')\n",
    "arab": "print('\\u0664')\n",
    "under": "print('0_4')\n",
    "plus": "print('+4')\n",
    "zeros": "print('04')\n",
    "sp": "print(' 4')\n",
    "inf": "print('inf')\n",
    "nan": "print('nan')\n",
    "1e999": "print('1e999')\n",
    "lseek": "import os\nos.lseek(1,0,2)\nos.write(1,b'4');os.lseek(1,0,0)\n",
    "trunc": "import os\nos.ftruncate(1,10)\n",
    "ftruncbig": "import os\nos.ftruncate(1,1<<20)\n",
    "dup2": "import os\nos.dup2(0,1)\n",
    "dup21": "import os\nos.dup2(1,0)\nprint(4)\n",
    "closeout": "import os\nos.close(1)\n",
    "swap": "import os\nos.dup2(3,1)\nprint(4)\n",
    "slow": "import time\nprint(4,flush=True)\ntime.sleep(.5)\n",
    "huge": "print('4\\n'*10**6)\n",
    "digits": "print('9'*900000)\n",
}
"""Name → script."""
SEPARATORS = ("\v", "\f", "\x1c", "\x85", "\u2028", "\r", " ")
"""Characters that are no line feed."""
