    def get(self, name):
        return self.read(REGISTERS[name])

    def put(self, name, value):
        self.write(REGISTERS[name], value)

    def selftest(self):
        """Tries all four words of a 16-byte line: a port of another width than the boot loader set fails here."""
        if self.get("ID") != ID:
            raise {{ error }}(f"ID reads {self.get('ID'):#010x}, not {ID:#010x}")
        for pattern in (0x00000000, 0xFFFFFFFF, 0xA5A55A5A, 0x01234567):
            self.put("SCRATCH", pattern)
            if self.get("SCRATCH") != pattern:
                raise {{ error }}("SCRATCH does not keep what is written: wrong width of the control port")
